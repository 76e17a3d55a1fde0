"""Decide whether a stream gets colours, and write text in them."""

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
    BLUE = 34
    CYAN = 36


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
