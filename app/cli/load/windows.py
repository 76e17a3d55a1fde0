"""Windows of time: what ended in each, and when their rates agree."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

AGREEING = 3
"""Windows that must agree before a measurement ends."""

TOLERANCE = 0.05
"""The largest distance between the rates of windows that agree, as a share of their mean."""

KEPT_UP = 0.95
"""The share of sent requests that are answered from which a server keeps up with an open loop."""

NOT_SENT = "not sent"
"""The kind of error of requests that were due while too many others waited for an answer."""

ENOUGH = 10
"""Requests that must have been counted: fewer are too coarse to be compared."""


@dataclass(slots=True)
class Window:
    """What ended within `seconds`: images, times of good requests in seconds, errors by kind.

    `sent` and `answered` count requests; refusals are answers too.
    """

    seconds: float = 0.0
    sent: int = 0
    answered: int = 0
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


def keeps_up(windows: Sequence[Window]) -> bool:
    """Return whether almost as many requests were answered as sent, and all of them were sent."""
    whole = merged(windows)
    enough = whole.sent >= ENOUGH and not whole.errors[NOT_SENT]
    return enough and whole.answered >= KEPT_UP * whole.sent


def merged(windows: Sequence[Window]) -> Window:
    """Return all windows as one."""
    whole = Window()
    for each in windows:
        whole.seconds += each.seconds
        whole.sent += each.sent
        whole.answered += each.answered
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
