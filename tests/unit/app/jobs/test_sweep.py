"""What has expired is removed, but not because the clock was set."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.jobs import sweep as sweeping
from app.jobs.files import MANIFEST, DataFolder
from app.jobs.store.arrivals import Arrivals
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import opened
from app.jobs.store.endings import EndingRows
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.store.values import Job, State
from app.jobs.sweep import HOLD, Sweep
from models.settings import Settings
from tests.fakes import FakeClock

RETENTION = 1000.0
ENDED = Job("1", "me", State.SUCCEEDED, "classify", {}, 1, 1, 0, 5, 0.0)


class Clocks:
    """The wall clock, which may be set, and the time since boot, as the module `time`."""

    CLOCK_BOOTTIME = time.CLOCK_BOOTTIME

    def __init__(self) -> None:
        self.wall, self.boot = FakeClock(1e9), FakeClock(5.0)

    def time(self) -> float:
        return self.wall()

    def monotonic(self) -> float:
        return self.boot()

    def clock_gettime(self, _clock: int) -> float:
        return self.boot()

    def pass_by(self, seconds: float) -> None:
        self.wall.advance(seconds)
        self.boot.advance(seconds)


def test_results_expire_by_the_clock_but_not_because_it_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks()
    monkeypatch.setattr(sweeping, "time", clocks)
    folder = DataFolder(tmp_path)

    async def main() -> None:
        engine = await opened(None, tmp_path)
        folder.make()
        rows, owner = JobRows(engine, clocks.time), Owner(engine, clocks.time)
        await owner.enter()

        async def kept() -> bool:
            await sweep.once()
            return (folder.of("1") / MANIFEST).exists()

        try:
            (folder.add("1") / MANIFEST).write_text("{}\n")
            expires = clocks.time() + RETENTION
            await rows.add(replace(ENDED, finished=clocks.time(), expires=expires), [])
            parts = ChunkRows(engine), Arrivals(engine, owner.id), EndingRows(engine, owner.id)
            runner = cast(Any, SimpleNamespace(wake=lambda: None))
            settings = Settings(job_retention=RETENTION)
            sweep = Sweep(settings, folder, rows, *parts, runner, 1 << 30)
            assert await kept()
            clocks.wall.advance(400 * 86400.0)
            assert await kept(), "the clock was set a year ahead"
            clocks.wall.advance(-400 * 86400.0)
            clocks.pass_by(RETENTION - 1)
            assert await kept()
            clocks.pass_by(2.0)
            assert await kept(), "the hour is not over"
            clocks.pass_by(HOLD)
            assert not await kept()
        finally:
            await engine.dispose()

    asyncio.run(main())
