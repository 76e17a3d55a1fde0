"""Free what processes that died have claimed, end cancelled jobs, and remove what has expired."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from sqlalchemy.exc import SQLAlchemyError

from app.jobs.files import DataFolder
from app.jobs.runner import Runner
from app.jobs.store.arrivals import Arrivals
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.endings import EndingRows
from app.jobs.store.jobs import JobRows
from models.settings import Settings

log = logging.getLogger("darkroom.jobs")

SWEEP = 10.0
"""Seconds between two removals of what has expired."""

SEARCH = 300.0
"""Seconds between two searches for folders without a job, which look at every file of all jobs."""

SET_AHEAD, HOLD = 600.0, 3600.0
"""Seconds by which the clock must have been set ahead since the last sweep so that nothing expires
for HOLD seconds: if it was set wrongly, the results of all jobs would be removed at once."""


class Sweep:
    """Sweeps regularly, beside those of other processes; a client may store `share` bytes."""

    def __init__(
        self,
        settings: Settings,
        folder: DataFolder,
        rows: JobRows,
        chunks: ChunkRows,
        arrivals: Arrivals,
        endings: EndingRows,
        runner: Runner,
        share: int,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._rows = rows
        self._chunks = chunks
        self._arrivals = arrivals
        self._endings = endings
        self._runner = runner
        self._share = share
        self._search_at = 0.0
        self._offset = _offset()
        self._expire_at = 0.0
        self.on_states: Callable[[Mapping[str, int]], None] = lambda _states: None
        """Takes the number of jobs in each state, at each sweep."""

    async def run(self) -> None:
        """Sweep until this is cancelled."""
        while True:
            try:
                await self.once()
            except (SQLAlchemyError, OSError) as error:
                log.warning("the database of jobs does not answer: %s", error)
            except Exception as error:  # a fault of ours must not end all later sweeps
                log.error("a sweep of the jobs failed", exc_info=error)
            await asyncio.sleep(SWEEP)

    async def once(self) -> None:
        """Sweep once; raises SQLAlchemyError and OSError."""
        self.on_states(await self._rows.by_state())
        retention = self._settings.job_retention
        if await self._chunks.release_abandoned():
            self._runner.wake()
        await self._rows.end_cancelled(retention)
        await self._arrivals.tidy()
        stored = await self._rows.stored()
        full = (client for client, n_bytes in stored.items() if n_bytes >= self._share)
        self._runner.full_clients = frozenset(full)
        self._runner.full = sum(stored.values()) >= self._settings.max_data_bytes
        if self._may_expire():
            while expired := await self._rows.expire():
                await self._remove(expired)
            await self._rows.forget(time.time() - 2 * retention)
        await self._endings.forget()
        if time.monotonic() >= self._search_at:
            self._search_at = time.monotonic() + SEARCH
            idle = await asyncio.to_thread(self._folder.unchanged)
            await self._remove({*idle} - await self._rows.known(idle))

    def _may_expire(self) -> bool:
        """Return whether the clock can be trusted to remove what has expired by it."""
        before, self._offset = self._offset, _offset()
        if self._offset - before > SET_AHEAD:
            ahead = self._offset - before
            log.warning("the clock was set ahead by %.0f s; no results expire for an hour", ahead)
            self._expire_at = time.monotonic() + HOLD
        return time.monotonic() >= self._expire_at

    async def _remove(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            await asyncio.to_thread(self._folder.remove, id_)


def _offset() -> float:
    """Return the seconds that only setting the clock changes, also while the host is suspended."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
