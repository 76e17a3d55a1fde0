"""Deadlines: absolute moments on the monotonic clock, in seconds. Timeouts are sugar on top."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment after which nobody waits for the answer any more."""

    at: float

    @classmethod
    def after(cls, seconds: float, now: float) -> "Deadline":
        """The moment `seconds` from `now`."""
        return cls(now + seconds)

    @property
    def alarm(self) -> float | None:
        """The moment as event loops want it: None when it never comes."""
        return None if math.isinf(self.at) else self.at

    def remaining(self, now: float) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - now)

    def expired(self, now: float) -> bool:
        """Whether the moment has come."""
        return now >= self.at


NEVER = Deadline(math.inf)
