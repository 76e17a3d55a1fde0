"""Workers that are connected and silent: nothing depends on them while there is another one."""

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tests.fakes import GUARD, FakeEngine, fake_job
from tests.worker_fixture import ARENA, encode_fake, running_worker, wait_until
from workers.backends.multi_process import ProcessBackend
from workers.backends.silent_workers import LOOK, SILENT, STOPPED
from workers.ipc.worker_client import Line
from workers.scheduling.batcher import BatchLimits

LIMITS = BatchLimits(max_batch_size=4, max_batch_pixels=1 << 30)
ENGINE = partial(FakeEngine, slots=1, keep=True)


def run(test: Callable[[], Any]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(GUARD):
            await test()

    asyncio.run(guarded())


async def connected(addresses: list[str]) -> ProcessBackend:
    """Return a backend on workers at these addresses, which looks only when a test does."""
    ours = ProcessBackend(addresses, ARENA, encode=encode_fake, drain_timeout=20.0)
    ours._silent.close()
    await wait_until(lambda: ours.load().device.count("fake") == len(addresses))
    return ours


def look(ours: ProcessBackend, seconds: float) -> None:
    """Look as often as in these seconds, between which nothing can be read."""
    for _ in range(1 + round(seconds / LOOK)):
        ours._silent.look()


async def another_report(line: Line) -> None:
    """Wait until a worker has reported once more."""
    before = line.reads
    await wait_until(lambda: line.reads > before)


def test_a_stopped_worker_makes_a_server_unready_until_it_reports_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        with running_worker(ENGINE, LIMITS) as worker:
            ours = await connected([worker.address])
            (line,) = ours._links[0].lines
            for most in (SILENT, STOPPED):
                await another_report(line)
                look(ours, most - LOOK)
                assert ours.load().alive
                ours._silent.look()
                assert not ours.load().alive
                assert ours.absence() > 0
                await another_report(line)
                look(ours, 0)
                assert ours.load().alive
                assert ours.absence() == 0
                monkeypatch.setattr("models.heartbeat.is_stopped", lambda _pid: True)
            await ours.aclose()

    run(test)


def test_jobs_go_to_a_worker_that_is_not_silent() -> None:
    async def test() -> None:
        with ExitStack() as stack:
            workers = [stack.enter_context(running_worker(ENGINE, LIMITS)) for _ in range(2)]
            ours = await connected([each.address for each in workers])
            (line,) = ours._links[0].lines
            line.silent = True
            await asyncio.gather(*(ours.run(fake_job(n)) for n in range(8)))
            assert workers[0].engine.seen == []
            assert sorted(workers[1].engine.seen) == list(range(8))
            await ours.aclose()

    run(test)


def test_jobs_go_to_a_silent_worker_if_there_is_no_other_one() -> None:
    async def test() -> None:
        with running_worker(ENGINE, LIMITS) as worker:
            ours = await connected([worker.address])
            ours._links[0].lines[0].silent = True
            await ours.run(fake_job(1))
            assert worker.engine.seen == [1]
            await ours.aclose()

    run(test)


def test_the_process_of_a_worker_is_known() -> None:
    async def test() -> None:
        with running_worker(ENGINE, LIMITS) as worker:
            ours = await connected([worker.address])
            assert ours._links[0].lines[0].pid == os.getpid()  # its thread is one of this process
            await ours.aclose()

    run(test)
