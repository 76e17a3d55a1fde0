"""Notice workers that are connected, and silent although they should report regularly."""

import asyncio
from collections.abc import Callable, Sequence

from models.heartbeat import Heartbeat, hangs
from workers.ipc.worker_client import Line, WorkerConnection

LOOK = 0.25
"""Seconds between two looks; a worker reports in each `REPORT` of `worker_server.py`."""

STOPPED = 1.0
"""Seconds of silence after which a worker that a signal has stopped counts as silent."""

SILENT = 10.0
"""The same of any other: an overloaded machine may delay reports by some seconds."""


class SilentWorkers:
    """Looks at all lines of `links`, and marks the silent ones until they report again.

    `changed` is called after each change. The supervisor kills a process that stays silent; until
    then a silent worker gets no jobs while there is another one, and makes no server ready.
    """

    def __init__(self, links: Sequence[WorkerConnection], changed: Callable[[], object]) -> None:
        self._links = links
        self._changed = changed
        self._hearts: dict[Line, tuple[int, Heartbeat]] = {}
        self._task = asyncio.create_task(self._keep_looking())

    def close(self) -> None:
        """Look no more."""
        self._task.cancel()

    def look(self) -> None:
        """Look at every line once."""
        hearts: dict[Line, tuple[int, Heartbeat]] = {}
        for line in [each for link in self._links for each in link.lines]:
            before, heart = self._hearts.get(line, (-1, Heartbeat(LOOK)))
            if line.reads != before:
                heart.beat()
            hearts[line] = line.reads, heart
            silent = hangs(line.pid, heart.silence() - LOOK, STOPPED, SILENT)
            if silent != line.silent:
                line.silent = silent
                self._changed()
        self._hearts = hearts

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self.look()
