"""Deadlines: absolute moments on the monotonic clock, in seconds. All timeouts become deadlines."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment `at` after which the answer is of no use; infinite if there is no deadline."""

    at: float

    @property
    def alarm(self) -> float | None:
        """Return the moment as event loops expect it: None if it is infinite."""
        return None if math.isinf(self.at) else self.at

    def remaining(self, now: float) -> float:
        """Return the seconds left at the moment `now`, never negative."""
        return max(0.0, self.at - now)

    def expired(self, now: float) -> bool:
        """Return whether the deadline has passed at the moment `now`."""
        return now >= self.at


NEVER = Deadline(math.inf)
