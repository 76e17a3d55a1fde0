"""End decoder processes that are stuck, and free the shared areas of those that rest."""

import asyncio

from app.decoders.process import DecoderProcess
from models.heartbeat import hangs

STUCK = 60.0
"""Seconds after which a process that neither uses up its CPU time nor answers is killed."""

STOPPED = 2.0
"""Seconds after which a process that a signal has stopped is killed: no load explains that."""

LOOK = 0.5
"""Seconds between two looks while a process works."""

REST = 10.0
"""Seconds without an image after which a shared area is freed."""


class Watchdog:
    """One timer for all processes of a pool: a timeout for each image would cost 0.02 ms.

    `idle` is the pool's list of processes without an image. Lives on one event loop, and holds no
    timer while no process works and all areas are free.
    """

    def __init__(self, idle: list[DecoderProcess]) -> None:
        self._idle = idle
        self._working: set[DecoderProcess] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, process: DecoderProcess, seconds: float) -> None:
        """Watch a process that has `seconds` of CPU time for its image."""
        process.looks, process.patience = 0, STUCK + seconds
        self._working.add(process)
        self._look_later(LOOK)

    def end(self, process: DecoderProcess) -> None:
        """Stop watching a process whose image is done."""
        process.idle_since = asyncio.get_running_loop().time()
        self._working.discard(process)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Kill processes that are stuck. A stopped one is no fault of its image, which another one
        decodes. Silence is counted in looks: an event loop that was busy has not looked.
        """
        self._timer = None
        now = asyncio.get_running_loop().time()
        for process in self._working:
            process.looks += 1
            silence = process.looks * LOOK
            if hangs(process.pid, silence, STOPPED, process.patience):
                process.stuck = silence >= process.patience
                process.kill()
        for process in self._idle:
            if process.area.used and now - process.idle_since >= REST:
                process.area.release()
        if self._working or any(process.area.used for process in self._idle):
            self._look_later(LOOK if self._working else REST)
