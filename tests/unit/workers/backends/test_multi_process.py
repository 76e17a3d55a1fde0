"""The process backend when workers come and go, and when the arena is full."""

import asyncio
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from app.admission.counters import Counters
from models.domain.deadline import Deadline
from models.domain.errors import (
    DeadlineExceeded,
    Draining,
    InternalError,
    Quarantined,
    WorkerLost,
)
from models.domain.image import Image
from models.domain.job import Completed, Job, Labels
from models.exit_codes import ExitCode
from models.networks.served import ServedNetwork
from tests.fakes import GUARD, FakeEngine, Inbox, fake_job, first_sample, number_of
from tests.pictures import as_image
from tests.worker_fixture import ARENA, RunningWorker, running_worker, wait_until
from workers.backends.multi_process import MAX_LOSSES, Pending, ProcessBackend
from workers.ipc.arena import LARGE, PAGE, ArenaSlot
from workers.ipc.frames import ENCODER, Frame, Leaving, Welcome
from workers.scheduling.batcher import BatchLimits

LIMITS = BatchLimits(max_batch_size=4, max_batch_pixels=1 << 30)
ENGINE = partial(FakeEngine, slots=1, keep=True)


def backend(*workers: RunningWorker | str, arena: int = ARENA, **hooks: Any) -> ProcessBackend:
    addresses = [w if isinstance(w, str) else w.address for w in workers]
    given = {"work": Counters(), "drain_timeout": 20.0, **hooks}
    _OPEN.append(ProcessBackend(addresses, arena, **given))
    return _OPEN[-1]


_OPEN: list[ProcessBackend] = []


@pytest.fixture(autouse=True)
async def all_closed() -> AsyncIterator[None]:
    """Close the backends of a test at its end."""
    yield
    while _OPEN:
        await _OPEN.pop().aclose()


def new_address() -> str:
    return f"\0darkroom-test-{secrets.token_hex(8)}"


def number(completed: Completed) -> int:
    assert isinstance(completed.result, Labels)
    return completed.result.class_ids[0]


async def on_device(worker: RunningWorker) -> None:
    """Wait until the engine has a batch, which is after its jobs were marked as launched."""
    await wait_until(lambda: bool(worker.engine.batches))


def refuses(worker: RunningWorker) -> bool:
    """Return whether a worker that is stopping refuses new jobs."""
    try:
        worker.worker.cancel(worker.worker.submit(fake_job(), Inbox()))
    except Draining:
        return True
    return False


async def test_what_a_lost_worker_had_not_answered_goes_to_its_successor() -> None:
    address = new_address()
    with ExitStack() as first:
        worker = first.enter_context(running_worker(ENGINE, LIMITS, address))
        ours = backend(address)
        worker.gate.shut()
        tasks = [asyncio.create_task(ours.run(fake_job(n, n_pixels=5))) for n in range(9)]
        await on_device(worker)
    await wait_until(lambda: not ours.load().alive)
    with running_worker(ENGINE, LIMITS, address):
        assert [number(c) for c in await asyncio.gather(*tasks)] == list(range(9))


async def test_the_welcome_waits_for_all_workers_as_long_as_it_may() -> None:
    late = new_address()
    with running_worker(ENGINE, LIMITS) as worker:
        ours = backend(worker, late)
        assert (await ours.welcome()).device == "fake"
        assert (await ours.welcome(0.05)).device == "fake"
        waiting = asyncio.create_task(ours.welcome(GUARD))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with running_worker(ENGINE, LIMITS, late):
            await waiting
            assert ours.load().device == "fake, fake"


async def test_of_four_workers_one_is_lost_and_one_leaves_without_a_lost_job() -> None:
    with ExitStack() as lost, ExitStack() as stack:
        first = lost.enter_context(running_worker(ENGINE, LIMITS))
        others = [stack.enter_context(running_worker(ENGINE, LIMITS)) for _ in range(3)]
        ours = backend(first, *others)
        await wait_until(lambda: ours.load().device == "fake, fake, fake, fake")
        first.gate.shut()
        others[0].gate.shut()
        tasks = [asyncio.create_task(ours.run(fake_job(n))) for n in range(80)]
        await on_device(first)
        await wait_until(lambda: others[0].worker.load().queued_jobs > 0)
        leaving = asyncio.create_task(asyncio.to_thread(others[0].worker.stop))
        await wait_until(lambda: refuses(others[0]))
        others[0].gate.open()
        lost.close()
        assert [number(c) for c in await asyncio.gather(*tasks)] == list(range(80))
        await leaving
        assert [number(c) for c in await asyncio.gather(*map(ours.run, map(fake_job, range(9))))]


async def test_large_images_count_as_many_small_ones_and_so_does_the_work_of_others() -> None:
    work = Counters()
    with running_worker(ENGINE, LIMITS) as one, running_worker(ENGINE, LIMITS) as other:
        ours = backend(one, other, work=work)
        await wait_until(lambda: ours.load().device == "fake, fake")
        work.add_work(0, 100)
        await asyncio.gather(*(ours.run(fake_job(n, n_pixels=10)) for n in range(9)))
        assert (len(one.engine.seen), len(other.engine.seen)) == (0, 9)
        await ours.run(fake_job(9, n_pixels=200))
        assert [work.work_of(each) for each in (0, 1)] == [100, 0]
        work.add_work(0, -100)


async def test_a_job_that_finds_no_worker_waits_for_one_until_its_deadline() -> None:
    address = new_address()
    ours = backend(address)
    late = fake_job(1, deadline=Deadline(time.monotonic() + 0.05))
    with pytest.raises(DeadlineExceeded):
        await ours.run(late)
    task = asyncio.create_task(ours.run(fake_job(2)))
    await wait_until(lambda: ours.load().queued_jobs == 1)
    with running_worker(ENGINE, LIMITS, address) as worker:
        assert number(await task) == 2
        assert worker.engine.seen == [2]


async def test_a_cancelled_job_on_the_device_keeps_its_slot_until_the_device_is_done() -> None:
    with running_worker(ENGINE, LIMITS) as worker:
        ours = backend(worker, arena=PAGE)
        worker.gate.shut()
        task = asyncio.create_task(ours.run(fake_job(1)))
        await on_device(worker)
        task.cancel()
        late = fake_job(2, deadline=Deadline(time.monotonic() + 0.1))
        with pytest.raises(DeadlineExceeded):
            await ours.run(late)
        worker.gate.open()
        assert number(await ours.run(fake_job(3))) == 3
        assert worker.engine.seen == [1, 3]


async def test_an_answer_too_large_for_its_slot_harms_no_neighbour() -> None:
    def answer(job: Job) -> Image | Labels:
        found = first_sample(job)
        assert isinstance(found, Labels)
        large = Image(as_image(job.image).pixels.repeat(9000, 0))
        return large if found.class_ids == (2,) else found

    with running_worker(partial(ENGINE, answer=answer), LIMITS) as worker:
        ours = backend(worker)
        found = await asyncio.gather(
            *(ours.run(fake_job(n)) for n in range(4)), return_exceptions=True
        )
        assert isinstance(found.pop(2), InternalError)
        assert [number(c) for c in found if isinstance(c, Completed)] == [0, 1, 3]


async def test_an_image_comes_back_as_a_copy_of_its_own() -> None:
    def answer(job: Job) -> Image:
        return Image(255 - as_image(job.image).pixels)

    with running_worker(partial(ENGINE, answer=answer), LIMITS) as worker:
        ours = backend(worker)
        first = (await ours.run(fake_job(1, n_pixels=7))).result
        await asyncio.gather(*(ours.run(fake_job(n, n_pixels=7)) for n in range(50)))
        assert isinstance(first, Image)
        assert first.pixels.tolist() == [[[254]] * 7]


DEGRADED, HEALTHY = Welcome("cpu", degraded="no GPU"), Welcome("cuda:0")


@pytest.mark.parametrize("welcomes", [(DEGRADED, HEALTHY), (HEALTHY, DEGRADED)])
async def test_one_degraded_worker_of_two_is_reported_whichever_came_last(
    welcomes: tuple[Welcome, ...],
) -> None:
    addresses, devices = [new_address() for _ in welcomes], set[str]()
    ours = backend(*addresses)
    with ExitStack() as stack:
        for address, welcome in zip(addresses, welcomes, strict=True):
            stack.enter_context(running_worker(ENGINE, LIMITS, address, welcome))
            devices.add(welcome.device)
            await wait_until(lambda: set(ours.load().device.split(", ")) == devices)
        assert ours.current.degraded == "no GPU"


async def test_a_worker_with_other_weights_gets_no_jobs_of_a_front_end_that_speaks_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, others = new_address(), list[int]()
    monkeypatch.setattr(signal, "raise_signal", others.append)

    ours = backend(address, drain_timeout=0.1)
    with running_worker(ENGINE, LIMITS, address):
        assert number(await ours.run(fake_job(1))) == 1
    await wait_until(lambda: not ours.load().alive)
    other = Welcome("fake", (ServedNetwork("resnet18", problem="other weights"),))
    with running_worker(ENGINE, LIMITS, address, other) as worker:
        task = asyncio.create_task(ours.run(fake_job(2)))
        await wait_until(lambda: others == [signal.SIGTERM])
        assert not ours.load().alive
        await ours.aclose()
        with pytest.raises(WorkerLost):
            await task
        assert worker.engine.seen == []


async def test_a_worker_that_is_given_up_keeps_slots_that_its_threads_may_still_write_to() -> None:
    with ExitStack() as first:
        worker = first.enter_context(running_worker(ENGINE, LIMITS))
        ours = backend(worker)
        worker.gate.shut()
        working = asyncio.create_task(ours.run(fake_job(1)))
        await on_device(worker)
        queued = asyncio.create_task(ours.run(fake_job(2)))
        await wait_until(lambda: worker.worker.load().queued_jobs == 1)
        (line,) = ours.lines
        assert not await asyncio.to_thread(worker.worker.stop, 0.0)
        await wait_until(lambda: len(line.pending) == 1)
        assert [number_of(each.job) for each in line.pending.values()] == [1]
        assert not working.done()
    with running_worker(ENGINE, LIMITS, worker.address):
        assert [number(c) for c in await asyncio.gather(working, queued)] == [1, 2]


async def test_closing_answers_whoever_still_waits_for_a_worker_or_for_room() -> None:
    ours = backend(new_address(), arena=PAGE, drain_timeout=0.05)
    tasks = [asyncio.create_task(ours.run(fake_job(n))) for n in range(3)]
    await wait_until(lambda: ours.load().queued_jobs == 3)
    await ours.aclose()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [WorkerLost] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
async def test_another_user_s_process_at_the_worker_s_address_gets_no_pixels() -> None:
    address = new_address()
    ready, seen = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            os.write(ready[1], b"1")
            connection, _ = listener.accept()
            connection.settimeout(100)
            found = socket.recv_fds(connection, 1, 1)[1]
            os.write(seen[1], b"1" if found else b"0")
            os._exit(0)
    os.read(ready[0], 1)
    late = fake_job(1, deadline=Deadline(time.monotonic() + 0.2))
    with pytest.raises(DeadlineExceeded):
        await backend(address).run(late)
    assert os.read(seen[0], 1) == b"0"
    await asyncio.to_thread(os.waitpid, pid, 0)
    for end in (*ready, *seen):
        os.close(end)


async def test_only_what_was_on_the_device_is_suspected_and_innocents_are_answered() -> None:
    """One job ends every worker that computes it; ten others are beside and behind it."""
    address, poison, here = new_address(), 66, list[RunningWorker]()
    reached = threading.Semaphore(0)

    def answer(job: Job) -> Labels:
        if number_of(job) == poison:
            reached.release()
            while here[-1].host._sessions:  # until the front end has lost this worker
                time.sleep(0.001)
        found = first_sample(job)
        assert isinstance(found, Labels)
        return found

    ours = backend(address)
    numbers = [0, 1, 2, poison, *range(3, 10)]
    tasks = [asyncio.create_task(ours.run(fake_job(n))) for n in numbers]
    guilty = tasks.pop(3)
    for _ in range(MAX_LOSSES):
        with running_worker(partial(ENGINE, answer=answer), LIMITS, address) as worker:
            here.append(worker)
            assert await asyncio.to_thread(reached.acquire, timeout=GUARD)
    with pytest.raises(Quarantined, match="2 processes ended"):
        await guilty
    alone = [batch for batch in here[1].engine.batches if number_of(batch[0]) == poison]
    assert [len(batch) for batch in alone] == [1]
    with running_worker(ENGINE, LIMITS, address):
        assert [number(c) for c in await asyncio.gather(*tasks)] == list(range(10))


async def test_a_slot_whose_copy_was_abandoned_is_free_only_when_the_copy_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, go_on = threading.Event(), threading.Event()
    write = ProcessBackend._write

    def slowly(ours: ProcessBackend, pending: Pending) -> None:
        write(ours, pending)
        started.set()
        assert go_on.wait(GUARD)

    monkeypatch.setattr(ProcessBackend, "_write", slowly)

    with running_worker(ENGINE, LIMITS) as worker:
        ours = backend(worker, arena=LARGE)
        copying = asyncio.create_task(ours.run(fake_job(1, n_pixels=LARGE)))
        await asyncio.to_thread(started.wait, GUARD)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        waiting = asyncio.create_task(ours.run(fake_job(2)))
        await wait_until(lambda: ours._slots.waiting == 1)
        go_on.set()
        assert number(await waiting) == 2


class Peer:
    """A worker's end, by hand: answers nothing unless a test says so."""

    def __init__(self) -> None:
        self.address = new_address()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen()
        self.listener.setblocking(False)
        self.connection: socket.socket | None = None

    async def accept(self) -> None:
        self.connection, _ = await asyncio.get_running_loop().sock_accept(self.listener)

    async def send(self, *frames: Frame) -> None:
        assert self.connection is not None
        body = ENCODER.encode(frames)
        packed = len(body).to_bytes(4, "little") + body
        await asyncio.get_running_loop().sock_sendall(self.connection, packed)

    def close(self) -> None:
        self.listener.close()
        if self.connection is not None:
            self.connection.close()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[ProcessBackend, Peer]]:
    """Yield a backend and the peer at the other end of its connection."""
    peer = Peer()
    ours = backend(peer.address, drain_timeout=0.0)
    await peer.accept()
    await peer.send(Welcome("fake"))
    await ours.welcome()
    yield ours, peer
    peer.close()


async def test_a_job_is_not_suspected_for_an_earlier_job_in_its_slot() -> None:
    async with linked() as (ours, _):
        ours._arena.mark(
            ArenaSlot(0, PAGE), True
        )  # of a job that was given up when its worker died
        task = asyncio.create_task(ours.run(fake_job(1)))
        await wait_until(lambda: bool(ours.lines[0].pending))
        assert not ours._arena.launched(ArenaSlot(0, PAGE))
        task.cancel()


async def test_a_worker_that_leaves_keeps_its_line_while_the_next_one_is_called() -> None:
    async with linked() as (ours, peer):
        (line,), leaving = ours.lines, peer.connection
        await peer.send(Leaving())
        await wait_until(lambda: not line.up)
        await peer.accept()
        await wait_until(lambda: len(ours.lines) == 2)
        assert not ours.load().alive
        await peer.send(Welcome("next"))
        await wait_until(lambda: ours.load().alive)
        assert line in ours.lines
        assert leaving is not None
        leaving.close()
        await line.gone.wait()


async def test_a_front_end_that_cannot_read_what_a_worker_sends_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(code: int) -> None:
        codes.append(code)
        raise OSError("the process has ended")

    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", end)

    async with linked() as (_, peer):
        assert peer.connection is not None
        await asyncio.get_running_loop().sock_sendall(peer.connection, b"\x02\0\0\0no")
        await wait_until(lambda: codes == [ExitCode.BROKEN])
