"""Numbers as text: queries and forms write them, and Python reads more than people mean by one."""

import math
import re

_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

LONGEST = 40
"""Characters of a number: a float64 has at most 24."""


def is_plain(text: str) -> bool:
    """Whether `text` is a finite decimal number in ASCII digits.

    `1_0`, ` 1`, `٣`, `NaN`, `Infinity` and `1e400` are none, although `int` or `float` take them.
    """
    return (
        len(text) <= LONGEST and _PLAIN.fullmatch(text) is not None and math.isfinite(float(text))
    )


def plain_float(text: str) -> float:
    """The number that `text` is, perhaps between spaces; raises ValueError."""
    if not is_plain(text.strip(" ")):
        raise ValueError("a plain number is needed")
    return float(text)


def checked(given: object) -> object:
    """Pass on what an option that is a number may be given as; raises ValueError for the rest."""
    if isinstance(given, bool) or (isinstance(given, str) and not is_plain(given)):
        raise ValueError("a number in plain digits is needed")
    return given
