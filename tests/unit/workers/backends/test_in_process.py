"""What is LocalBackend's own, beyond the contract of every backend: loops, threads and drains."""

import asyncio
import gc
import time
import weakref
from typing import TypeVarTuple

from models.domain.alarms import alarms
from models.domain.deadline import Deadline
from models.domain.errors import Undecodable
from models.domain.job import Labels
from tests.fakes import FakeEngine, FakeSlot, Gate, fake_job
from tests.pictures import as_image
from workers.backends.in_process import LocalBackend
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

Arguments = TypeVarTuple("Arguments")


def started(engine: FakeEngine) -> Worker[FakeSlot]:
    worker = Worker(engine, BatchLimits(16, 1 << 30))
    worker.start()
    return worker


async def test_a_job_goes_on_when_the_requests_of_its_server_are_given_up() -> None:
    gate = Gate()
    worker = started(FakeEngine(slots=1, on_collect=gate))
    deadline = Deadline(time.monotonic() + 600)
    running = asyncio.create_task(LocalBackend(worker).run(fake_job(deadline=deadline)))
    await asyncio.to_thread(gate.wait_reached)
    alarms().end()
    gate.open()
    assert isinstance((await running).result, Labels)
    worker.stop()


async def test_a_failed_job_keeps_no_image_alive() -> None:
    """Not even until the next run of the garbage collector: images are large."""

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


async def test_a_job_cancelled_with_its_answer_on_the_way_harms_no_neighbour() -> None:
    gate = Gate()

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
