"""What the front end may expect of any backend. A new backend is one more entry of `RIGS`.

A rig is a backend over a device that tests can hold, with one staging slot.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol

import numpy as np
import pytest

from app.admission.counters import Counters
from models.domain.backend import Backend
from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    ServiceError,
    Undecodable,
)
from models.domain.image import Image, Jpeg, Source, Subsampling
from models.domain.job import Completed, Job, Labels, Result
from tests.fakes import FakeEngine, Gate, fake_job, fake_jpeg, first_sample, number_of
from tests.ray_cluster import deploy_held, ray_rig, running_ray
from tests.worker_fixture import ARENA, RunningWorker, running_worker, wait_until
from workers.backends.in_process import LocalBackend
from workers.backends.multi_process import ProcessBackend
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

POISON = 255
BAD_IMAGE = 254
PLUG = 253
FILE = 252
"""Whose answer is a JPEG, made of its image's samples."""


class Rig(Protocol):
    """A backend, and a hand on its device."""

    @property
    def backend(self) -> Backend: ...

    @property
    def seen(self) -> list[int]:
        """Return the numbers of the jobs that the device was given, once for each time."""

    def hold(self) -> None:
        """Keep batches that are launched from now on from finishing."""

    def let_go(self) -> None:
        """Let the held batches finish."""

    async def held(self) -> None:
        """Wait until one more batch is held or has passed."""

    async def accepted(self) -> None:
        """Wait until the jobs of all tasks made so far wait at the device."""


def told(source: Source) -> Labels:
    """Return labels that carry every field of a JPEG."""
    assert isinstance(source, Jpeg)
    shape = (source.height, source.width, source.orientation, source.data.size)
    return Labels((*shape, *source.data[[0, -1]].tolist()), (float(source.subsampling[2]),))


def answer(job: Job) -> Result | ServiceError:
    """Return the job's number; a poison job breaks its whole batch."""
    if isinstance(job.image, Jpeg):
        return told(job.image)
    if number_of(job) == FILE:
        assert isinstance(job.image, Image)
        return Jpeg(job.image.pixels.reshape(-1)[1:], 30, 20, 1, Subsampling.S422)
    if number_of(job) == POISON:
        raise RuntimeError("secret internal text")
    return Undecodable("no image") if number_of(job) == BAD_IMAGE else first_sample(job)


class LocalRig:
    """A worker in threads of this process."""

    backend: Backend

    def __init__(self) -> None:
        self._gate = Gate(is_open=True)
        self._engine = FakeEngine(slots=1, answer=answer, on_collect=self._gate, keep=True)
        worker = Worker(self._engine, BatchLimits(max_batch_size=16, max_batch_pixels=1 << 30))
        worker.start()
        self.backend = LocalBackend(worker)

    @property
    def seen(self) -> list[int]:
        return self._engine.seen

    def hold(self) -> None:
        self._gate.shut()

    def let_go(self) -> None:
        self._gate.open()

    async def held(self) -> None:
        await asyncio.to_thread(self._gate.wait_reached)

    async def accepted(self) -> None:
        await asyncio.sleep(0)  # a new task hands its job over in its first turn of the loop


class ProcessRig(LocalRig):
    """A worker that is reached as one in another process is: by a socket and an arena."""

    def __init__(self, running_worker: RunningWorker) -> None:
        self._hosted = running_worker
        self._gate, self._engine = running_worker.gate, running_worker.engine
        self._process = ProcessBackend([running_worker.address], ARENA, Counters())
        self.backend = self._process

    async def ready(self) -> None:
        await self._process.welcome()

    async def accepted(self) -> None:
        await asyncio.sleep(0)
        await wait_until(lambda: self._hosted.worker.submitted == self._process.submitted)


@asynccontextmanager
async def local() -> AsyncIterator[Rig]:
    """Yield the rig of a worker in threads of this process."""
    rig = LocalRig()
    yield rig
    rig.let_go()
    await rig.backend.aclose()


@asynccontextmanager
async def process() -> AsyncIterator[Rig]:
    """Yield the rig of a worker behind a socket."""
    engine = partial(FakeEngine, slots=1, answer=answer, keep=True)
    with running_worker(engine, BatchLimits(max_batch_size=16, max_batch_pixels=1 << 30)) as worker:
        rig = ProcessRig(worker)
        await rig.ready()
        yield rig
        rig.let_go()
        await rig.backend.aclose()


Rigging = Callable[[], AbstractAsyncContextManager[Rig]]
RIGS: dict[str, Rigging | None] = {"local": local, "process": process, "ray": None}
"""What makes a rig of each backend; for Ray the fixture `on_ray` does."""


SLOW = {"ray": pytest.mark.slow}  # Ray takes 20 s of CPU time to start and to end


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in RIGS])
def rigging(request: pytest.FixtureRequest) -> Rigging:
    """Return what makes a rig, for each backend."""
    made: Rigging = RIGS[request.param] or request.getfixturevalue("on_ray")
    return made


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rigging]:
    """Start Ray with one replica, which all tests use one after the other."""
    folder = tmp_path_factory.mktemp("gate")
    with running_ray():
        yield partial(ray_rig, deploy_held(folder, answer), folder)


@pytest.fixture
async def rig(rigging: Rigging) -> AsyncIterator[Rig]:
    """Yield a fresh rig in the loop of the test."""
    async with rigging() as made:
        yield made


def number(completed: Completed) -> int:
    """Return the number of the job that was answered."""
    assert isinstance(completed.result, Labels)
    return completed.result.class_ids[0]


async def started(rig: Rig, *jobs: Job) -> list[asyncio.Task[Completed]]:
    """Start tasks whose jobs wait behind a plug that holds the device."""
    rig.hold()
    plug = asyncio.create_task(rig.backend.run(fake_job(PLUG)))
    await rig.held()
    tasks = [asyncio.create_task(rig.backend.run(job)) for job in jobs]
    await rig.accepted()
    return [plug, *tasks]


async def test_every_job_gets_its_own_answer(rig: Rig) -> None:
    answers = await asyncio.gather(*(rig.backend.run(fake_job(n)) for n in range(200)))
    assert [number(each) for each in answers] == list(range(200))


async def test_a_jpeg_arrives_encoded_and_whole(rig: Rig) -> None:
    jobs = [fake_jpeg(n, 1 + 997 * n) for n in range(1, 9)]
    answers = await asyncio.gather(*(rig.backend.run(job) for job in jobs))
    assert [each.result for each in answers] == [told(job.image) for job in jobs]


async def test_an_answer_may_be_a_jpeg_and_arrives_whole(rig: Rig) -> None:
    samples = np.arange(5000).astype(np.uint8).reshape(10, 500, 1)
    samples[0, 0] = FILE
    job = Job(fake_job().operation, Image(samples))
    result = (await rig.backend.run(job)).result
    assert isinstance(result, Jpeg)
    assert result.data.tobytes() == samples.tobytes()[1:]
    found = (result.height, result.width, result.orientation, result.subsampling)
    assert found == (30, 20, 1, Subsampling.S422)


async def test_a_trace_comes_with_the_answer(rig: Rig) -> None:
    plug, *tasks = await started(rig, fake_job(1), fake_job(2))
    rig.let_go()
    await plug
    trace = (await tasks[0]).trace
    assert (trace.batch_size, trace.max_batch_size) == (2, 16)
    assert min(trace.queue, trace.upload, trace.compute, trace.download) >= 0


async def test_a_bad_image_raises_its_own_error_and_harms_no_neighbour(rig: Rig) -> None:
    plug, bad, good = await started(rig, fake_job(BAD_IMAGE), fake_job(1))
    rig.let_go()
    await plug
    with pytest.raises(Undecodable):
        await bad
    assert number(await good) == 1


async def test_a_job_that_breaks_its_batch_fails_alone(rig: Rig) -> None:
    jobs = [fake_job(n) for n in (*range(7), POISON, *range(7, 15))]
    plug, *tasks = await started(rig, *jobs)
    rig.let_go()
    await plug
    with pytest.raises(InternalError) as caught:
        await tasks.pop(7)
    assert "secret" not in caught.value.detail
    assert [number(each) for each in await asyncio.gather(*tasks)] == list(range(15))


async def test_a_hung_device_still_gives_the_deadline_in_time(rig: Rig) -> None:
    rig.hold()
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await rig.backend.run(fake_job(deadline=Deadline(start + 0.05)))
    assert time.monotonic() - start >= 0.045


async def test_a_job_past_its_deadline_never_reaches_the_device(rig: Rig) -> None:
    with pytest.raises(DeadlineExceeded):
        await rig.backend.run(fake_job(1, deadline=Deadline(time.monotonic())))
    assert number(await rig.backend.run(fake_job(2))) == 2
    assert rig.seen == [2]


async def test_a_job_whose_deadline_passes_in_the_queue_never_reaches_the_device(rig: Rig) -> None:
    soon = Deadline(time.monotonic() + 0.5)
    plug, late = await started(rig, fake_job(1, deadline=soon))
    # A report of a replica may be older than the job: none that waits may mean not yet.
    await wait_until(lambda: rig.backend.load().queued_jobs == 1 or late.done())
    with pytest.raises(DeadlineExceeded):
        await late
    await wait_until(lambda: rig.backend.load().queued_jobs == 0)
    rig.let_go()
    await plug
    assert rig.seen == [PLUG]


async def test_a_job_cancelled_in_the_queue_never_reaches_the_device(rig: Rig) -> None:
    plug, kept, left = await started(rig, fake_job(1), fake_job(2))
    await wait_until(lambda: rig.backend.load().queued_jobs == 2)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    await wait_until(lambda: rig.backend.load().queued_jobs == 1)
    rig.let_go()
    await plug
    await kept
    assert rig.seen == [PLUG, 1]


async def test_a_job_cancelled_on_the_device_blocks_nobody(rig: Rig) -> None:
    plug, behind = await started(rig, fake_job(1))
    plug.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plug
    rig.let_go()
    assert number(await behind) == 1


async def test_the_load_tells_what_waits_and_what_runs(rig: Rig) -> None:
    tasks = await started(rig, fake_job(1, n_pixels=6), fake_job(2, n_pixels=3))
    await wait_until(lambda: rig.backend.load().queued_jobs == 2)
    load = rig.backend.load()
    assert (load.queued_jobs, load.running_jobs) == (2, 1)
    assert load.alive
    assert load.device
    rig.let_go()
    await asyncio.gather(*tasks)
    await wait_until(lambda: rig.backend.load().service_rate > 0)


async def test_closing_finishes_what_was_accepted(rig: Rig) -> None:
    tasks = await started(rig, fake_job(1), fake_job(2))
    closing = asyncio.create_task(rig.backend.aclose())
    rig.let_go()
    await closing
    assert [number(each) for each in await asyncio.gather(*tasks)] == [PLUG, 1, 2]


async def test_a_closed_backend_refuses_as_draining_and_may_be_closed_again(rig: Rig) -> None:
    await rig.backend.aclose()
    with pytest.raises(Draining):
        await rig.backend.run(fake_job())
    assert not rig.backend.load().alive
    await rig.backend.aclose()
