"""Expect how long a filter takes on one core, before any image of its kind was measured.

The figures were measured with a picture of 640 × 480 in RGB on one core (x86_64), and rounded. The
relation between filters matters, because admission multiplies them by what this machine showed
itself to be faster or slower. A filter that is not listed takes `USUAL`.
"""

from collections.abc import Callable, Sequence
from typing import Any

USUAL = 5.0
"""Nanoseconds a pixel of most filters."""

_SLOW: dict[str, Callable[[Any], float]] = {
    "bilateral": lambda f: 2 + 0.7 * f.diameter**2,
    "nl_means": lambda f: 2 * f.search**2,
    "rank": lambda f: min(750.0, 2.0 * f.size**2),
    "median": lambda f: 2.0 if f.size <= 5 else 60.0,
    "guided": lambda _: 40.0,
    "motion_blur": lambda f: 0.7 * f.length,
    "gaussian_blur": lambda f: 10 + 3.5 * f.sigma,
    "unsharp_mask": lambda f: 12 + 3.5 * f.sigma,
    "dog": lambda f: 6 + 0.9 * (f.sigma1 + f.sigma2),
    "noise": lambda _: 9.0,
}


def nanoseconds(filters: Sequence[Any]) -> float:
    """Return the expected nanoseconds a pixel of filters that are applied one after the other."""
    return sum([_SLOW[each.name](each) if each.name in _SLOW else USUAL for each in filters])
