"""One engine of a worker, and its batches between the threads that launch and collect them."""

import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic

from models.domain.job import Lane
from models.thread_priority import lower_priority
from workers.scheduling.batch import Batch
from workers.scheduling.batcher import ALL
from workers.scheduling.engine import Engine, SlotT
from workers.scheduling.ticket import Ticket


class EngineLine(Generic[SlotT]):
    """An engine that computes the batches of lanes of some `kinds`.

    `changed` is notified, under the lock of the worker, when there may be a batch for it; `waiting`
    says that its launch thread waits for that. Where it `yields`, its threads have
    a lower priority than all others.
    """

    def __init__(
        self, engine: Engine[SlotT], kinds: frozenset[Lane], lock: threading.RLock, *, yields: bool
    ) -> None:
        self.engine = engine
        self.kinds = kinds
        self.yields = yields
        self.changed = threading.Condition(lock)
        self.waiting = False
        self.launched: queue.SimpleQueue[tuple[SlotT, Batch] | None] = queue.SimpleQueue()
        self._launch: threading.Thread | None = None
        self._collect: list[threading.Thread] = []

    def wake(self, ticket: Ticket) -> None:
        """Wake the launch thread for a new job if it waits; else it looks before it waits."""
        if self.waiting and (ticket.alone or ticket.job.lane in self.kinds):
            self.changed.notify()

    def start(
        self,
        guarded: Callable[[Callable[[], None]], None],
        launch: "Callable[[EngineLine[SlotT]], None]",
        collect: "Callable[[EngineLine[SlotT]], None]",
    ) -> None:
        """Start one thread that launches batches, and those that collect them.

        Each thread calls `guarded` with its loop.
        """
        self._launch = self._thread(partial(guarded, partial(launch, self)), "launch")
        collected = partial(guarded, partial(collect, self))
        n = self.engine.collectors
        self._collect = [self._thread(collected, "collect") for _ in range(n)]
        for thread in (self._launch, *self._collect):
            thread.start()

    def join(self, left: Callable[[], float | None]) -> bool:
        """Wait at most `left()` seconds for each thread that collects; return whether all ended."""
        for thread in self._collect:
            thread.join(left())
        return not any(thread.is_alive() for thread in self._collect)

    def close(self, left: Callable[[], float | None]) -> bool:
        """Close the engine, and wait at most `left()` seconds for the thread that launches.

        Return whether it ended.
        """
        self.engine.close()  # wakes that thread, should it still wait for a slot
        if self._launch is None:
            return True
        self._launch.join(left())
        return not self._launch.is_alive()

    def _thread(self, loop: Callable[[], None], name: str) -> threading.Thread:
        def run() -> None:
            show_thread(name)
            if self.yields:
                lower_priority()
            loop()

        return threading.Thread(target=run, name=name, daemon=True)


def show_thread(name: str) -> None:
    """Let `top -H` and the like list the calling thread by this name. Linux only."""
    with suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


def notify(lines: Iterable[EngineLine[SlotT]]) -> None:
    """Let all launch threads look for a batch again; the caller holds the lock of the worker."""
    for line in lines:
        line.changed.notify()


def time_left(timeout: float | None, clock: Callable[[], float]) -> Callable[[], float | None]:
    """Return what returns the seconds of a timeout that are left, or None without one."""
    until = None if timeout is None else clock() + timeout
    return lambda: None if until is None else max(0.0, until - clock())


def lines_of(
    engine: Engine[SlotT], background: Engine[SlotT] | None, lock: threading.RLock
) -> list[EngineLine[SlotT]]:
    """Return the engines of a worker: without one for the background, one for all lanes."""
    if background is None:
        return [EngineLine(engine, ALL, lock, yields=False)]
    behind = frozenset({Lane.BACKGROUND})
    return [
        EngineLine(engine, ALL - behind, lock, yields=False),
        EngineLine(background, behind, lock, yields=True),
    ]
