"""Decide whether a client may hold so much of a limit, by what others want and were refused."""

from app.admission.counts.counters import Counters, now_ns
from app.admission.counts.fields import Mark
from app.admission.counts.limits import within_share

CONTENTION = 10_000_000_000
"""Nanoseconds after the refusal of one client in which no other client may hold everything."""


class Contention:
    """Remembers over all front ends when a client with a small share was refused."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def fair(self, own: int, total: int, limit: int) -> bool:
        """Return whether a client may hold `own` of the `total` amount that is held."""
        others = max(0, total - own)
        if within_share(own, others, limit, contended=True):
            return True
        contended = now_ns() - self._counters.newest(Mark.CONTENDED) < CONTENTION
        return within_share(own, others, limit, contended)

    def note(self, own: int, limit: int) -> None:
        """Note that a client with `own` was refused; large shares shrink if that is little."""
        if own * 16 <= limit:
            self._counters.mark(Mark.CONTENDED, now_ns())
