"""When a worker's process gives its device up."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.processes import member
from models.domain.backend import Load

PATIENCE = 100.0

BUSY = Load("fake", 0, 0, 1, 0.0, alive=True)
IDLE = replace(BUSY, running_jobs=0)
WORKING = [replace(BUSY, progress=n) for n in range(900)]


class FakeWorker:
    """A worker whose loads a test gives; the last one stays."""

    def __init__(self, *loads: Load) -> None:
        self._loads = [*loads]

    def load(self) -> Load:
        return self._loads.pop(0) if len(self._loads) > 1 else self._loads[0]


def is_given_up(*loads: Load) -> bool:
    """Return whether a worker is given up within a thousand looks, each of which is a second."""
    worker: Any = FakeWorker(*loads)

    async def looked() -> bool:
        death = asyncio.ensure_future(member._death(worker, PATIENCE))
        for _ in range(1000):
            await asyncio.sleep(0)
        return death.done() or not death.cancel()

    return asyncio.run(looked())


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
    monkeypatch.setattr(member, "LOOK", 1.0)


def test_a_device_that_gets_no_work_done_is_given_up() -> None:
    assert is_given_up(BUSY)
    assert is_given_up(*WORKING[:50], BUSY)


def test_a_device_that_has_no_work_or_gets_it_done_is_not_given_up() -> None:
    assert not is_given_up(IDLE)
    assert not is_given_up(*WORKING, IDLE)


def test_a_worker_whose_threads_have_ended_is_given_up() -> None:
    assert is_given_up(replace(IDLE, alive=False))
