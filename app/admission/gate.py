"""Weighted semaphore over a count that other processes may share: what does not fit waits.

Within a front end it is first come, first served. Between front ends, what is given back goes to
whoever asks first, until the first in some front end's line has waited for `PATIENCE`: from then
on the others take nothing before it. So large amounts are not starved by small ones, and the usual
case costs no messages. Waiting front ends look every `POLL` seconds; one process alone needs none.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from app.admission.counters import Counters, Key, now_ns
from app.admission.fields import ByKey, Mark, Total

POLL = 0.005
"""Seconds between two looks at what other front ends have given back."""

PATIENCE = 100_000_000
"""Nanoseconds for which the first in a line lets other front ends go before it."""

FRESH = 500_000_000
"""Nanoseconds after which the mark of a front end that no longer looks is ignored."""


class Pool(Protocol):
    """Something limited. `shared`: other processes take from it too."""

    limit: int
    shared: bool
    hands_over: bool
    """Whether what is given back may go to the next in the own line at once."""

    def take(self, amount: int, since: int) -> bool:
        """Take `amount` for somebody waiting since then, if it fits; whether it was taken."""

    def give_back(self, amount: int) -> None:
        """The reverse of `take`."""

    def wait_since(self, since: int) -> None:
        """Tell other front ends since when the first of ours waits; 0: none waits."""


class TotalPool:
    """A total of the whole server; `mark` says since when each front end waits for it."""

    hands_over = True

    def __init__(self, counters: Counters, field: Total, mark: Mark, limit: int) -> None:
        self._counters = counters
        self._field = field
        self._mark = mark
        self.limit = limit
        self.shared = counters.shared

    def take(self, amount: int, since: int) -> bool:
        """Not before another front end's, if that one has waited for longer than `PATIENCE`."""
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
        """Write the mark, and that this front end is alive."""
        if self.shared:
            self._counters.mark(Mark.BEAT, now_ns())
            self._counters.mark(self._mark, since)


class KeyPool:
    """The part of one key, of which each front end's line gets its chance at each look."""

    def __init__(self, counters: Counters, key: Key, field: ByKey, limit: int) -> None:
        self._counters = counters
        self._key = key
        self._field = field
        self.limit = limit
        self.shared = counters.shared
        self.hands_over = not counters.shared

    def take(self, amount: int, since: int) -> bool:
        """If it fits."""
        return self._counters.take_for(self._key, self._field, amount, self.limit)

    def give_back(self, amount: int) -> None:
        """Count less."""
        self._counters.add_for(self._key, self._field, -amount)

    def wait_since(self, since: int) -> None:
        """Nothing to tell."""


class Gate:
    """Waits in line for a pool. Lives on one event loop."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self._first_since = 0
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Wait for `amount`, then hold it while the block runs.

        An amount over the limit is let in alone, as if it were the whole limit.
        """
        taken = min(amount, self.pool.limit)
        if self._waiting or not self.pool.take(taken, now_ns()):
            taken = await self._wait(amount)
        try:
            yield
        finally:
            self.pool.give_back(taken)
            if self._waiting and self.pool.hands_over:
                self.wake()

    def wake(self) -> None:
        """Admit waiters in order while they fit; a cancelled waiter takes nothing."""
        while self._waiting:
            amount, turn = self._waiting[0]
            if not turn.cancelled():
                amount = min(amount, self.pool.limit)
                if not self.pool.take(amount, self._first_since):
                    break
                turn.set_result(amount)
            self._waiting.popleft()
            self._first_since = now_ns()
        self._note()

    async def _wait(self, amount: int) -> int:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[int] = loop.create_future()
        if not self._waiting:
            self._first_since = now_ns()
        self._waiting.append((amount, turn))
        self._note()
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.pool.give_back(turn.result())
            self.wake()
            raise

    def _note(self) -> None:
        """Tell other front ends how long the first has waited, and look again soon."""
        self.pool.wait_since(self._first_since if self._waiting else 0)
        if self._waiting and self.pool.shared and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        self.wake()
