"""What is LocalBackend's own, beyond the contract of every backend: loops, threads and drains."""

import asyncio
import gc
import time
import weakref
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple, cast

import pytest

from models.domain.alarms import alarms
from models.domain.deadline import Deadline
from models.domain.errors import Undecodable, WorkerLost
from models.domain.job import Completed, Labels
from tests.fakes import FakeEngine, FakeSlot, Gate, Inbox, fake_job
from tests.pictures import as_image
from workers.backends.in_process import LocalBackend
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

Arguments = TypeVarTuple("Arguments")


def started(engine: FakeEngine) -> Worker[FakeSlot]:
    worker = Worker(engine, BatchLimits(16, 1 << 30))
    worker.start()
    return worker


@pytest.mark.parametrize("ends", ["closed", "forgotten"])
def test_a_loop_that_ended_before_its_answer_harms_nobody(ends: str) -> None:
    gate, inbox = Gate(), Inbox()
    worker = started(FakeEngine(slots=1, on_collect=gate))
    backend = LocalBackend(worker)
    loop = asyncio.new_event_loop()
    coroutine = backend.run(fake_job(1))
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0, None))
    gate.wait_reached()
    loop.close()
    cast(Any, task)._log_destroy_pending = False  # private to asyncio, so without a type
    if ends == "forgotten":
        coroutine.close()
        del loop, task, coroutine
        gc.collect()
    gate.open()
    assert inbox.answer_of(worker.submit(fake_job(2), inbox)) == 2
    worker.stop()


def test_two_loops_share_one_worker() -> None:
    worker = started(FakeEngine())
    backend = LocalBackend(worker)

    async def run(number: int) -> Completed:
        return await backend.run(fake_job(number))

    assert asyncio.run(run(1)).result != asyncio.run(run(2)).result
    worker.stop()


def test_a_job_goes_on_when_the_requests_of_its_server_are_given_up() -> None:
    gate = Gate()
    worker = started(FakeEngine(slots=1, on_collect=gate))
    backend = LocalBackend(worker)

    async def scenario() -> None:
        deadline = Deadline(time.monotonic() + 600)
        running = asyncio.create_task(backend.run(fake_job(deadline=deadline)))
        await asyncio.to_thread(gate.wait_reached)
        alarms().end()
        gate.open()
        assert isinstance((await running).result, Labels)

    asyncio.run(scenario())
    worker.stop()


def test_a_drain_that_takes_too_long_is_given_up() -> None:
    gate = Gate()

    async def test() -> None:
        backend = LocalBackend(started(FakeEngine(slots=1, on_collect=gate)), drain_timeout=0.0)
        hung = asyncio.create_task(backend.run(fake_job()))
        await asyncio.to_thread(gate.wait_reached)
        await backend.aclose()
        with pytest.raises(WorkerLost):
            await hung

    asyncio.run(test())
    gate.open()


def test_a_failed_job_keeps_no_image_alive() -> None:
    """Not even until the next run of the garbage collector: images are large."""

    async def test() -> None:
        backend = LocalBackend(started(FakeEngine(answer=lambda _job: Undecodable("no image"))))
        job = fake_job()
        pixels = weakref.ref(as_image(job.image).pixels)
        error: Undecodable | None = None
        gc.disable()
        try:
            await backend.run(job)
        except Undecodable as raised:
            error = raised
        finally:
            gc.enable()
        await backend.aclose()
        del job
        assert error is not None
        assert pixels() is None

    asyncio.run(test())


def test_a_job_cancelled_with_its_answer_on_the_way_harms_no_neighbour() -> None:
    gate = Gate()

    async def test() -> None:
        worker = started(FakeEngine(slots=1, on_collect=gate))
        backend = LocalBackend(worker)
        plug = asyncio.create_task(backend.run(fake_job()))
        await asyncio.to_thread(gate.wait_reached)
        left, kept = (asyncio.create_task(backend.run(fake_job(n))) for n in (1, 2))
        await asyncio.sleep(0)  # a new task hands its job over in its first turn of the loop
        gate.open()
        worker.stop()  # all outcomes are posted, and this loop has not turned since
        left.cancel()
        assert (await kept).result == Labels((2,), (1.0,))
        assert left.cancelled()
        await plug

    asyncio.run(test())


def test_the_deadlines_of_many_images_share_one_timer_of_the_loop() -> None:
    class CountingLoop(asyncio.SelectorEventLoop):
        timers = 0

        def call_at(
            self,
            when: float,
            callback: Callable[[*Arguments], object],
            *args: *Arguments,
            context: Context | None = None,
        ) -> asyncio.TimerHandle:
            self.timers += 1
            return super().call_at(when, callback, *args, context=context)

    loop = CountingLoop()

    async def test() -> None:
        backend = LocalBackend(started(FakeEngine()))
        deadline = Deadline.after(60.0, time.monotonic())
        await asyncio.gather(*(backend.run(fake_job(n, deadline=deadline)) for n in range(20)))
        await backend.aclose()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test())
    assert loop.timers == 1
