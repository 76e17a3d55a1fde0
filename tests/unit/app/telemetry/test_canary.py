"""Readiness: what a canary, the load and the work that is done say together."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from app.telemetry import canary as canary_module
from app.telemetry.canary import Canary, canary_operations
from models.domain.backend import Load
from models.domain.errors import DeadlineExceeded, InternalError
from models.domain.image import Image
from models.domain.job import Completed, Job, Labels, ReleaseReason, Result, Trace
from models.networks.served import ServedNetwork
from tests.fakes import FakeClock, fake_network
from tests.worker_fixture import wait_until
from workers.operations import Classify, FilterChain

INTERVAL = 5.0
PIXEL = Image(np.zeros((1, 1, 1), np.uint8))
WORKING = Load("fake", 0, 0, 10.0, alive=True)
TRACE = Trace(0, 0, 0, 0, 0, 1, 1, ReleaseReason.IDLE)


class FakeBackend:
    """Answers canaries at once, or as a test says."""

    def __init__(self) -> None:
        self.now = WORKING
        self.answer: Result | Exception = Labels((1,), (1.0,))
        self.asked = 0
        self.failing: object = None

    async def run(self, job: Job) -> Completed:
        self.asked += 1
        if job.operation.batch_key == self.failing:
            raise InternalError("broken")
        if isinstance(self.answer, Exception):
            raise self.answer
        return Completed(self.answer, TRACE)

    def load(self) -> Load:
        return self.now

    async def aclose(self) -> None:
        pass


def made(*networks: str, interval: float = INTERVAL) -> tuple[Canary, FakeBackend, FakeClock]:
    backend, clock = FakeBackend(), FakeClock(100.0)
    operations = [Classify(network=each) for each in networks or ("a",)]
    return Canary(backend, operations, PIXEL, interval, clock), backend, clock


def test_every_network_with_weights_has_a_canary_of_its_own() -> None:
    networks = [fake_network("a", name=name) for name in ("resnet18", "resnet50")]
    missing = ServedNetwork("resnet34", problem="it is not here")
    operations = canary_operations([*networks, missing])
    assert operations == [Classify(top_k=1, network=each.name) for each in networks]
    assert [type(each) for each in canary_operations([missing])] == [FilterChain]


async def test_one_canary_that_fails_is_enough_not_to_pass() -> None:
    canary, backend, clock = made("a", "b")
    await canary.probe()
    assert canary.readiness().ready
    assert backend.asked == 2
    backend.failing = Classify(network="b").batch_key
    clock.now += 4 * INTERVAL
    await canary.probe()
    assert canary.readiness().problem == "internal_error: broken"
    assert not canary.readiness().ready


@pytest.mark.parametrize("works", [False, True])
async def test_a_worker_that_is_back_must_pass_or_do_other_work_before_it_counts(
    works: bool,
) -> None:
    canary, backend, _ = made()
    assert not canary.readiness().ready
    assert not canary.started
    await canary.probe()
    backend.now = replace(WORKING, alive=False)
    found = canary.readiness()
    assert (found.ready, found.problem) == (False, "no worker is running")
    backend.now = WORKING
    assert not canary.readiness().ready
    if works:
        backend.now = replace(WORKING, progress=1.0)
    else:
        await canary.probe()
    assert canary.readiness().ready


async def test_a_canary_that_waits_behind_slow_work_that_progresses_is_no_fault() -> None:
    canary, backend, clock = made()
    await canary.probe()
    backend.answer = DeadlineExceeded("late")
    for step in range(1, 10):
        clock.advance(INTERVAL)
        backend.now = replace(WORKING, progress=float(step))
        await canary.probe()
        assert canary.readiness().ready
    clock.advance(3 * INTERVAL)
    assert not canary.readiness().ready, "nothing was done for three intervals"


@pytest.mark.parametrize("wrong", [Labels((2,), (1.0,)), InternalError("broken")])
async def test_a_changed_answer_or_an_error_is_a_fault_whatever_else_is_done(
    wrong: Result | Exception,
) -> None:
    canary, backend, clock = made()
    await canary.probe()
    backend.answer = wrong
    clock.advance(3 * INTERVAL)
    await canary.probe()
    backend.now = replace(WORKING, progress=9.0)
    assert not canary.readiness().ready
    assert canary.readiness().problem == canary.problem


async def test_a_worker_that_is_back_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_module, "LOOK", 0.001)

    canary, backend, _ = made(interval=1000.0)
    await canary.probe()
    backend.now = replace(WORKING, alive=False)
    probing = asyncio.create_task(canary.keep_probing())
    canary.readiness()
    backend.now = WORKING
    await wait_until(lambda: backend.asked == 2)
    await wait_until(lambda: canary.readiness().ready)
    probing.cancel()
