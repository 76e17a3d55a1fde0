"""The worker's two threads, held at gates instead of sleeping; no engine but the fake one."""

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from models.domain.errors import (
    InternalError,
    Undecodable,
    WorkerLost,
)
from models.domain.image import Image
from models.domain.job import Job, uncounted
from tests.fakes import (
    GUARD,
    FakeClock,
    FakeEngine,
    FakeSlot,
    Gate,
    Inbox,
    fake_job,
    number_of,
)
from workers.scheduling.batch import Batch, Observer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.ticket import Ticket
from workers.scheduling.worker import Worker

PLUG = 254
"""The number of the job that keeps a device with one slot busy."""


@contextmanager
def running(
    engine: FakeEngine,
    size: int = 16,
    delay: float = 0.0,
    clock: FakeClock | None = None,
    on_batch: Observer | None = None,
) -> Iterator[Worker[FakeSlot]]:
    limits = BatchLimits(size, 1 << 30, delay)
    worker = Worker(engine, limits, on_batch, clock) if clock else Worker(engine, limits, on_batch)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def submit(worker: Worker[FakeSlot], inbox: Inbox, numbers: Sequence[int]) -> list[Ticket]:
    return [worker.submit(fake_job(number), inbox) for number in numbers]


def busy(worker: Worker[FakeSlot], gate: Gate) -> None:
    """Occupy the device until the gate opens; jobs that are submitted meanwhile form one batch."""
    worker.submit(fake_job(PLUG), Inbox())
    gate.wait_reached()


def test_a_batch_grows_while_the_device_is_busy_and_is_delivered_and_observed_once() -> None:
    sizes: list[int] = []
    gate, inbox = Gate(), Inbox()
    engine = FakeEngine(slots=1, on_collect=gate, keep=True)
    with running(engine, on_batch=lambda batch, _: sizes.append(len(batch.tickets))) as worker:
        busy(worker, gate)
        submit(worker, inbox, range(5))
        gate.open()
    assert sizes == [len(batch) for batch in engine.batches] == [1, 5]
    assert inbox.calls == [5]


def test_a_mailbox_or_an_observer_that_raises_stops_no_thread() -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the loop is gone")

    inbox = Inbox()
    with running(FakeEngine(), on_batch=broken) as worker:
        worker.submit(fake_job(), broken)
        assert inbox.answer_of(worker.submit(fake_job(2), inbox)) == 2


def test_a_batch_too_large_for_memory_is_split_until_it_fits() -> None:
    def launch(jobs: Sequence[Job]) -> None:
        if len(jobs) > 4:
            raise MemoryError

    gate, inbox = Gate(), Inbox()
    with running(FakeEngine(slots=1, on_launch=launch, on_collect=gate)) as worker:
        busy(worker, gate)
        tickets = submit(worker, inbox, range(16))
        gate.open()
        assert [inbox.answer_of(ticket) for ticket in tickets] == list(range(16))


def test_an_engine_that_forgets_a_value_fails_only_its_batch() -> None:
    inbox, engine = Inbox(), FakeEngine(lose=1)
    with running(engine) as worker:
        assert isinstance(inbox.error_of(worker.submit(fake_job(), inbox)), InternalError)
        engine.lose = 0
        assert inbox.answer_of(worker.submit(fake_job(3), inbox)) == 3


def test_the_service_rate_is_jobs_per_second_while_busy() -> None:
    gate, clock = Gate(), FakeClock()

    def collect(jobs: Sequence[Job]) -> None:
        gate(jobs)
        clock.advance(0.5 * len(jobs))

    with running(FakeEngine(slots=1, on_collect=collect), clock=clock) as worker:
        busy(worker, gate)
        submit(worker, Inbox(), range(4))
        gate.open()
    assert worker.load().service_rate == pytest.approx(2.0)


def test_the_servers_own_jobs_leave_the_service_rate_unknown() -> None:
    inbox, clock = Inbox(), FakeClock()
    with running(FakeEngine(on_collect=lambda _jobs: clock.advance(1.0)), clock=clock) as worker:
        with uncounted():
            own = fake_job(3)
        assert inbox.answer_of(worker.submit(own, inbox)) == 3
        assert worker.load().service_rate == 0.0


def test_a_hung_engine_is_given_up_and_what_it_says_later_is_not_heard() -> None:
    gate, inbox = Gate(), Inbox()
    with running(FakeEngine(slots=1, on_collect=gate)) as worker:
        device: list[str] = []
        hung = worker.submit(fake_job(), inbox, on_device=lambda has: device.append(f"hung {has}"))
        gate.wait_reached()
        waiting = worker.submit(fake_job(), inbox, on_device=lambda _has: device.append("waiting"))
        assert not worker.stop(timeout=0.0)
        assert device == ["hung True"]
        assert isinstance(inbox.error_of(hung), WorkerLost)
        assert isinstance(inbox.error_of(waiting), WorkerLost)
        gate.open()
    assert len(inbox.all_of(hung)) == len(inbox.all_of(waiting)) == 1


@pytest.mark.parametrize("stage", ["launch", "collect"])
def test_a_thread_that_dies_leaves_nobody_waiting(stage: str) -> None:
    gate, inbox = Gate(), Inbox()

    def die(jobs: Sequence[Job]) -> None:
        gate(jobs)
        raise SystemExit

    engine = FakeEngine(slots=1)
    setattr(engine, f"on_{stage}", die)
    with running(engine) as worker:
        tickets = [worker.submit(fake_job(), inbox)]
        gate.wait_reached()
        tickets.append(worker.submit(fake_job(), inbox))
        gate.open()
        assert {type(inbox.error_of(ticket)) for ticket in tickets} == {WorkerLost}
        with pytest.raises(WorkerLost):
            worker.submit(fake_job(), inbox)
        assert not worker.load().alive


def test_batches_take_other_limits_at_once_but_none_that_the_engine_was_not_made_for() -> None:
    gate, inbox, engine = Gate(), Inbox(), FakeEngine(slots=1, keep=True)
    engine.on_collect = gate
    with running(engine, size=4) as worker:
        busy(worker, gate)
        tickets = submit(worker, inbox, range(4))
        worker.set_batching(2, 1 << 20, 0.0)
        gate.open()
        assert [inbox.answer_of(t) for t in tickets] == list(range(4))
        assert [len(batch) for batch in engine.batches] == [1, 2, 2]
    assert BatchLimits(4, 100).within(99, 999, 0.5) == BatchLimits(4, 100, 0.5)
    assert BatchLimits(4, 100).within(0, 50, 0.0) == BatchLimits(4, 50)


def test_the_device_is_done_with_a_job_before_it_is_given_the_next_one() -> None:
    inbox, events = Inbox(), list[object]()
    engine = FakeEngine(slots=3, on_launch=lambda jobs: events.append(number_of(jobs[0])))
    with running(engine) as worker:
        tickets = [
            worker.submit(fake_job(n), inbox, on_device=events.append, alone=True)
            for n in range(2, 5)
        ]
        assert [inbox.answer_of(t) for t in tickets] == [2, 3, 4]
    assert events == [True, 2, False, True, 3, False, True, 4, False]


def test_a_worker_that_waits_holds_no_image_of_its_last_batch() -> None:
    let_go = threading.Event()
    with running(FakeEngine()) as worker:
        job = fake_job(1)
        assert isinstance(job.image, Image)
        weakref.finalize(job.image.pixels, let_go.set)
        worker.submit(job, lambda _outcomes: None)
        del job
        assert let_go.wait(GUARD), "the pixels are still in memory"


def test_the_servers_own_jobs_are_left_out_of_the_batches_that_are_observed() -> None:
    gate, inbox, seen = Gate(), Inbox(), list[list[int]]()

    def observe(batch: Batch, _seconds: float) -> None:
        seen.append([number_of(each.job) for each in batch.tickets])

    with running(FakeEngine(slots=1, on_collect=gate), on_batch=observe) as worker:
        with uncounted():
            busy(worker, gate)  # alone in its batch
            own = worker.submit(fake_job(1), inbox)
        tickets = [worker.submit(fake_job(n), inbox) for n in (2, 3)]
        gate.open()
        assert [inbox.answer_of(each) for each in (own, *tickets)] == [1, 2, 3]
    assert seen == [[2, 3]]


def test_a_service_error_raised_by_the_engine_reaches_the_client_as_it_is() -> None:
    def launch(_jobs: Sequence[Job]) -> None:
        raise Undecodable("no image")

    inbox = Inbox()
    with running(FakeEngine(on_launch=launch)) as worker:
        assert isinstance(inbox.error_of(worker.submit(fake_job(), inbox)), Undecodable)
