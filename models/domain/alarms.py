"""Alarms at deadlines: all alarms of an event loop behind a single timer.

Every image has an alarm for its deadline, and hardly any alarm ever rings. To start and to cancel a
timer of the event loop takes 3 µs, and `asyncio.timeout_at` takes 5 µs. Here moments are rounded up
to ticks, and all alarms of a tick are the keys of a dictionary, so that setting and cancelling take
0.7 µs together, and a `Timeout` 2 µs (a timing wheel: Varghese and Lauck, 1987,
https://doi.org/10.1145/37499.37504).
"""

import asyncio
import heapq
import math
import threading
from collections.abc import Callable
from types import TracebackType

from models.domain.deadline import Deadline
from models.domain.errors import DeadlineExceeded, Draining, ServiceError

TICKS_PER_SECOND = 200
"""An alarm rings up to 5 ms late, and never early."""


class Alarm:
    """A callback that is due at a deadline. `Alarms` gives it the dictionary of its moment.

    With `ends_early` it rings before that if the server gives up its requests.
    """

    __slots__ = ("_ring", "ends_early", "tick")

    def __init__(self, ring: Callable[[], None], *, ends_early: bool = True) -> None:
        self._ring = ring
        self.ends_early = ends_early
        self.tick: dict[Alarm, bool] = {}

    def cancel(self) -> bool:
        """Forget the callback; return whether it was still due."""
        return self.tick.pop(self, False)

    def ring(self) -> None:
        """Call back, unless that has been done or cancelled."""
        if self.cancel():
            self._ring()


class Alarms:
    """The alarms of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticks: dict[int, dict[Alarm, bool]] = {}
        self._order: list[int] = []
        """A heap of the keys of `_ticks`."""
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False
        """Whether the server has given up the requests that it had."""

    def set(
        self, deadline: Deadline, ring: Callable[[], None], *, ends_early: bool = True
    ) -> Alarm:
        """Call `ring` at the deadline, unless that is infinite; see `Alarm` for `ends_early`."""
        alarm = Alarm(ring, ends_early=ends_early)
        self.start(alarm, deadline)
        return alarm

    def start(self, alarm: Alarm, deadline: Deadline) -> None:
        """Let an alarm ring at the deadline, unless that is infinite."""
        tick: dict[Alarm, bool] = {}  # of an alarm that the clock never rings
        if self.ended and alarm.ends_early:
            self.loop.call_soon(alarm.ring)
        elif deadline.at != math.inf:
            number = math.ceil(deadline.at * TICKS_PER_SECOND)
            if (found := self._ticks.get(number)) is not None:
                tick = found
            else:
                self._ticks[number] = tick
                heapq.heappush(self._order, number)
                if self._order[0] == number:
                    self._start_timer()
        alarm.tick = tick
        tick[alarm] = True

    def end(self) -> None:
        """Ring all alarms that end early, and alarms that are set later in the next turn of the
        event loop.

        So requests that a server has no more time for end as late requests do.
        """
        self.ended = True
        for alarm in [each for tick in self._ticks.values() for each in tick if each.ends_early]:
            alarm.ring()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(self._order[0] / TICKS_PER_SECOND, self._ring)

    def _ring(self) -> None:
        """Ring the due alarms, and start the timer for the next tick that has alarms."""
        self._timer = None
        now = self.loop.time() * TICKS_PER_SECOND
        due: list[Alarm] = []
        while self._order and (self._order[0] <= now or not self._ticks[self._order[0]]):
            due.extend(self._ticks.pop(heapq.heappop(self._order)))
        if self._order:
            self._start_timer()
        for alarm in due:
            alarm.ring()


class Timeout(Alarm):
    """`asyncio.timeout_at` for a deadline, with its alarm among all alarms.

    A context manager: at the deadline the task inside is cancelled, and the block ends with
    TimeoutError, of which `interrupted` tells the reason.
    """

    __slots__ = ("_cancelling", "_deadline", "_rang", "_task")

    def __init__(self, deadline: Deadline, *, ends_early: bool = True) -> None:
        self._deadline = deadline
        self.ends_early = ends_early
        self._rang = False

    def __enter__(self) -> "Timeout":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        alarms().start(self, self._deadline)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()
        ours = self._rang and self._task.uncancel() <= self._cancelling
        del self._task  # a cancelled task refers to this object by its traceback
        if ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def ring(self) -> None:
        """Cancel the task, unless that has been done or the block has ended."""
        if self.cancel():
            self._rang = True
            self._task.cancel()


_of_thread = threading.local()


def alarms() -> Alarms:
    """Return the alarms of the running event loop."""
    loop = asyncio.get_running_loop()
    found: Alarms | None = getattr(_of_thread, "alarms", None)
    if found is None or found.loop is not loop:
        found = _of_thread.alarms = Alarms(loop)
    return found


def interrupted() -> ServiceError:
    """Return the error of work that a Timeout has ended: it is late, or the server ends."""
    if alarms().ended:
        return Draining("the server is shutting down; send it again")
    return DeadlineExceeded("the request's deadline passed")
