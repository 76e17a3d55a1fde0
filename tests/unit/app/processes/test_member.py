"""When a worker's process gives its device up."""

import asyncio
from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from app.processes import member
from models.domain.backend import Load

PATIENCE = 100.0

BUSY = Load("fake", 0, 1, 0.0, alive=True)
IDLE = replace(BUSY, running_jobs=0)
WORKING = [replace(BUSY, progress=n) for n in range(900)]


@pytest.mark.parametrize(
    ("loads", "given_up"),
    [
        ([BUSY], True),
        ([*WORKING[:50], BUSY], True),
        ([IDLE], False),
        ([*WORKING, IDLE], False),
        ([replace(IDLE, alive=False)], True),
    ],
    ids=["hangs", "hangs later", "idle", "works", "ended"],
)
async def test_a_worker_is_given_up_whose_threads_end_or_get_no_work_done(
    loads: list[Load], given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look a thousand times, each of which is a second."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
    monkeypatch.setattr(member, "LOOK", 1.0)
    left = chain(loads, repeat(loads[-1]))
    worker: Any = SimpleNamespace(load=lambda: next(left))
    death = asyncio.ensure_future(member._death(worker, PATIENCE))
    for _ in range(1000):
        await sleep(0)
    assert (death.done() or not death.cancel()) is given_up
