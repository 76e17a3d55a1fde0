"""Suggest the known name that is closest to a mistyped name."""

import difflib
from collections.abc import Iterable

LONGEST = 64
"""The longest part of a given name that is compared, in characters.

The comparison takes quadratic time, so an unbounded name would be an attack.
"""


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like `given`, or None if none is similar.

    Upper and lower case, and `-` and `_`, count as equal.
    """
    by_spelling = {_spelling(name): name for name in known}
    found = difflib.get_close_matches(_spelling(given[:LONGEST]), by_spelling, 1)
    return by_spelling[found[0]] if found else None


def hint(given: str, known: Iterable[str]) -> str:
    """Return `did you mean 'name'? ` with a space at its end, or nothing."""
    found = closest(given, known)
    return f"did you mean {found!r}? " if found is not None else ""


def _spelling(name: str) -> str:
    return name.lower().replace("-", "_")
