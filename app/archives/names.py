"""Names of members: decoded, and made safe to be used as a relative path."""

import re

LONGEST_NAME = 1000
"""Largest number of characters of a member's name, which is part of its record."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BEGINNING = re.compile(r"^(?:[A-Za-z]:|\.{0,2}/)+")
"""Drives, and what is left out between them: `./C:/a`, `C:C:a`."""


def decoded(raw: bytes, otherwise: str) -> str:
    """Return a name that is mostly UTF-8, else in the codec `otherwise`, which has all bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode(otherwise, "replace")


def safe_name(name: str) -> str:
    """Return a name as a relative path with `/`: no `..`, no drive, no control characters.

    Zip Slip (CWE-22) is not possible with the result. Two names may have the same result.
    """
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", name.replace("\\", "/"))
    # Once more after it is cut: what is left of a first part may be `..`, or a drive.
    return _relative(_relative(text)[-LONGEST_NAME:]) or "unnamed"


def _relative(path: str) -> str:
    parts = _BEGINNING.sub("", path).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def is_hidden(name: str) -> bool:
    """Return whether a safe name is a file of an operating system rather than of a person."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
