"""Weighted semaphore over a count that other processes may share: amounts that do not fit wait.

Within a front end the order is first come, first served. Between front ends a released amount goes
to the first one that asks for it, until the first waiter of some front end has waited for
`PATIENCE`: from then on the other front ends take nothing before it. So small amounts do not starve
large ones, and the usual case needs no messages. Front ends with waiters check every `POLL` seconds
whether something was released; a process alone need not.
"""

import asyncio
from types import TracebackType

from app.admission.counters import Counters, Mark, Total, now_ns
from models.domain.wait_queue import WaitQueue

POLL = 0.005
"""Seconds between two checks for amounts that other front ends have released."""

PATIENCE = 100_000_000
"""Nanoseconds for which other front ends may overtake the first waiter of a front end."""

FRESH = 500_000_000
"""Nanoseconds after which the mark of a front end that has stopped checking is ignored."""


class TotalPool:
    """A total of the whole server; `mark` is the time since which each front end waits for it."""

    def __init__(self, counters: Counters, field: Total, mark: Mark, limit: int) -> None:
        self._counters = counters
        self._field = field
        self._mark = mark
        self.limit = limit
        self.shared = counters.shared

    def take(self, amount: int, since: int) -> bool:
        """Take `amount` unless another front end's waiter has waited for longer than `PATIENCE`."""
        if self.shared:
            now = now_ns()
            starving = self._counters.others(self._mark, now - FRESH)
            if any(other < since and now - other > PATIENCE for other in starving):
                return False
        return self._counters.take(self._field, amount, self.limit)

    def give_back(self, amount: int) -> None:
        """Count less."""
        self._counters.add(self._field, -amount)

    def wait_since(self, since: int) -> None:
        """Set the mark, and note that this front end is alive."""
        if self.shared:
            self._counters.mark(Mark.BEAT, now_ns())
            self._counters.mark(self._mark, since)


class Hold:
    """An amount of a gate while a block runs; no generator, because those take 6 µs more."""

    __slots__ = ("_amount", "_gate")

    def __init__(self, gate: "Gate", amount: int) -> None:
        self._gate = gate
        self._amount = amount

    async def __aenter__(self) -> None:
        self._amount = await self._gate.take(self._amount)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._gate.give_back(self._amount)


class Gate:
    """Waits for a pool in the order of asking. It belongs to one event loop."""

    def __init__(self, pool: TotalPool) -> None:
        self.pool = pool
        self._queue = WaitQueue(self._taken, pool.give_back, self._note)
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, amount: int) -> "Hold":
        """Wait for `amount`, then hold it while the block runs.

        An amount over the limit is treated as the whole limit, so it is held alone.
        """
        return Hold(self, amount)

    def take_now(self, amount: int) -> bool:
        """Return whether `amount` was taken, which is not waited for."""
        return self._queue.take_now(amount) is not None

    async def take(self, amount: int) -> int:
        """Wait for `amount`; return what `give_back` must be called with."""
        return await self._queue.take(amount)

    def give_back(self, taken: int) -> None:
        """Release what `take` returned."""
        self.pool.give_back(taken)
        if self._queue:
            self.wake()

    def wake(self) -> None:
        """Let waiters continue in order while they fit."""
        self._queue.wake()

    def _taken(self, amount: int, since: int) -> int | None:
        """Take an amount, or the whole limit if that is less; None if it does not fit."""
        amount = min(amount, self.pool.limit)
        return amount if self.pool.take(amount, since) else None

    def _note(self) -> None:
        """Tell other front ends how long the first has waited, and check again soon."""
        self.pool.wait_since(self._queue.first_since)
        if self._queue and self.pool.shared and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        self.wake()
