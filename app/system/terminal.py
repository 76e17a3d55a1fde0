"""Decide whether a stream gets colours, and write text that cannot steer a terminal."""

import os
from collections.abc import Mapping
from enum import IntEnum
from typing import TextIO


class Style(IntEnum):
    """Parameters of ECMA-48's "select graphic rendition" (8.3.117)."""

    BOLD = 1
    DIM = 2
    RED = 31
    GREEN = 32
    YELLOW = 33


_LINES = {code: f"\\x{code:02x}" for code in (*range(10), *range(11, 32), *range(127, 160))}
_CONTROLS = _LINES | {10: "\\x0a"}


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return text of somebody else with its control characters (C0, DEL, C1) escaped (`\x1b`).

    Surrogates, which UTF-8 cannot have, are escaped too. With `lines` newlines stay. Escape before
    `styled` adds its own sequences.
    """
    known = text.encode("utf-8", "backslashreplace").decode()
    return known.translate(_LINES if lines else _CONTROLS)


def is_terminal(stream: TextIO) -> bool:
    """Return whether a person reads the stream; a closed stream is none."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def has_colours(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether to write colours to the stream.

    A non-empty NO_COLOR forbids them (no-color.org), then a non-empty FORCE_COLOR other than 0
    demands them (force-color.org). Otherwise terminals get them, unless TERM is `dumb`.
    """
    names = os.environ if environment is None else environment
    if names.get("NO_COLOR"):
        return False
    if names.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_terminal(stream) and names.get("TERM") != "dumb"


def styled(text: str, *styles: Style, on: bool = True) -> str:
    """Return the text in these styles, or unchanged if they are not `on`."""
    if not on or not styles or not text:
        return text
    return f"\x1b[{';'.join(str(each.value) for each in styles)}m{text}\x1b[0m"
