"""Numbers as text, in queries and forms; Python accepts more spellings than are allowed here."""

import math
import re

_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

LONGEST = 40
"""Characters of a number: a float64 has at most 24."""


def is_plain(text: str) -> bool:
    """Return whether `text` is a finite decimal number in ASCII digits.

    `1_0`, ` 1`, `٣`, `NaN`, `Infinity` and `1e400` are not, although `int` or `float` accept them.
    """
    return (
        len(text) <= LONGEST and _PLAIN.fullmatch(text) is not None and math.isfinite(float(text))
    )


def plain_float(text: str) -> float:
    """Return the number that `text` contains, possibly between spaces; raise ValueError."""
    if not is_plain(text.strip(" ")):
        raise ValueError("a plain number is needed")
    return float(text)


def checked(given: object) -> object:
    """Return a valid value of a numeric option unchanged; raise ValueError for others."""
    if isinstance(given, bool) or (isinstance(given, str) and not is_plain(given)):
        raise ValueError("a number in plain digits is needed")
    return given
