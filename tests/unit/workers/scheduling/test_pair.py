"""Two workers as one."""

from models.domain.job import Job
from tests.fakes import FakeEngine, FakeSlot, Gate, Inbox, fake_job, number_of
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.pair import Pair
from workers.scheduling.worker import Worker


def started(engine: FakeEngine) -> Worker[FakeSlot]:
    worker = Worker(engine, BatchLimits(1, 1 << 30))
    worker.start()
    return worker


def even(job: Job) -> bool:
    return number_of(job) % 2 == 0


def test_each_job_goes_to_the_worker_that_takes_it() -> None:
    first, second = FakeEngine(keep=True), FakeEngine(keep=True)
    pair, inbox = Pair(started(first), started(second), even), Inbox()
    tickets = [pair.submit(fake_job(n), inbox) for n in range(6)]
    assert [inbox.answer_of(ticket) for ticket in tickets] == list(range(6))
    pair.stop()
    assert (first.seen, second.seen) == ([0, 2, 4], [1, 3, 5])


def test_a_slow_second_worker_holds_nobody_up() -> None:
    gate, inbox = Gate(), Inbox()
    pair = Pair(started(FakeEngine()), started(FakeEngine(slots=1, on_collect=gate)), even)
    slow = pair.submit(fake_job(1), inbox)
    gate.wait_reached()
    waiting = pair.submit(fake_job(3), inbox)
    assert inbox.answer_of(pair.submit(fake_job(2), inbox)) == 2
    assert pair.load().queued_jobs + pair.load().running_jobs == 2
    assert pair.cancel(waiting)
    gate.open()
    assert inbox.answer_of(slow) == 1
    pair.stop()
    assert not inbox.all_of(waiting)
    assert not pair.load().alive


def test_load_is_that_of_both_and_the_device_is_the_firsts() -> None:
    pair = Pair(started(FakeEngine(device="one")), started(FakeEngine(device="two")), even)
    assert pair.load().device == "one"
    assert pair.load().alive
    pair.stop()
