"""Windows of time: what ended in each, and when their rates agree."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

AGREEING = 3
"""Windows that must agree before a measurement ends."""

TOLERANCE = 0.05
"""The largest distance between the rates of windows that agree, as a share of their mean."""


ENOUGH = 10
"""Requests that a window must have: the rates of fewer are too coarse to be compared."""


@dataclass(slots=True)
class Window:
    """What ended within `seconds`: images, times of good requests in seconds, errors by kind."""

    seconds: float = 0.0
    images: int = 0
    times: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Return the good images per second."""
        return self.images / self.seconds if self.seconds else 0.0


def agree(windows: Sequence[Window]) -> bool:
    """Return whether the last `AGREEING` windows have almost the same rate, and enough requests."""
    last = windows[-AGREEING:]
    if len(last) < AGREEING or min(len(each.times) for each in last) < ENOUGH:
        return False
    rates = [each.rate for each in last]
    return max(rates) - min(rates) <= TOLERANCE * sum(rates) / len(rates)


def merged(windows: Sequence[Window]) -> Window:
    """Return all windows as one."""
    whole = Window()
    for each in windows:
        whole.seconds += each.seconds
        whole.images += each.images
        whole.times += each.times
        whole.errors += each.errors
    return whole


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the ordered values do not exceed.

    This is the "nearest rank" definition; None if there are no values.
    """
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
