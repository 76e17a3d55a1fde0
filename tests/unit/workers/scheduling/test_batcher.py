"""Jobs alone in a batch, suspects, and dead jobs; `test_batcher_schedules` has the other rules."""

from functools import partial

from models.domain.deadline import Deadline
from models.domain.job import Job, ReleaseReason
from tests.fakes import fake_job, number_of
from workers.scheduling.batcher import BatchLimits, MicroBatcher, Picked
from workers.scheduling.ticket import Ticket


def ticket(job: Job) -> Ticket:
    return Ticket(job, lambda _outcomes: None)


def batcher(
    size: int = 4, pixels: int = 1000, delay: float = 0.0, ageing: float = 1.0
) -> MicroBatcher:
    return MicroBatcher(BatchLimits(size, pixels, delay, ageing))


def add(to: MicroBatcher, job: Job, now: float = 0.0) -> Ticket:
    added = ticket(job)
    to.add(added, now)
    return added


def numbers(picked: Picked) -> list[int]:
    return [number_of(t.job) for t in picked.batch]


FULL, BUDGET, IDLE = ReleaseReason.FULL, ReleaseReason.BUDGET, ReleaseReason.IDLE


def test_a_job_that_gains_nothing_from_others_waits_for_none() -> None:
    alone, other = partial(fake_job, key="a"), partial(fake_job, key="b")
    kind = alone(0).operation
    b = MicroBatcher(BatchLimits(4, 1000, 0.5, alone=lambda job: job.operation == kind))
    for job in (alone(0), alone(1), other(2), other(3)):
        add(b, job)
    found = [b.pick(now) for now in (0, 0, 0, 0.5)]
    assert [numbers(each) for each in found] == [[0], [1], [], [2, 3]]
    assert found[-1].reason is ReleaseReason.DELAY


def test_jobs_that_ride_alone_are_dropped_up_to_the_last_moment() -> None:
    b = MicroBatcher(BatchLimits(4, 1000, alone=lambda _job: True))
    first, second = add(b, fake_job(1)), add(b, fake_job(2))
    third = add(b, fake_job(3, deadline=Deadline(1.0)))
    assert b.pick(0.0).batch == [first]
    b.cancel(second)
    picked = b.pick(2.0)
    assert (picked.batch, picked.dropped, b.queued_jobs) == ([], [third], 0)


def test_a_suspect_waits_for_an_idle_device_and_everything_else_for_it() -> None:
    b = batcher()
    for number in (1, 2):
        b.add(Ticket(fake_job(number), lambda _outcomes: None, alone=True), 0.0)
    add(b, fake_job(3))
    assert b.pick(0.0, idle=False) == Picked([], ReleaseReason.IDLE, [], None)
    assert [numbers(b.pick(0.0)) for _ in range(4)] == [[1], [2], [3], []]
    assert (b.queued_jobs, b.suspects) == (0, 0)


def test_a_suspect_that_expires_or_is_cancelled_holds_nothing_up() -> None:
    b = batcher()
    late = Ticket(fake_job(1, deadline=Deadline(1.0)), lambda _outcomes: None, alone=True)
    left = Ticket(fake_job(2), lambda _outcomes: None, alone=True)
    for each in (late, left):
        b.add(each, 0.0)
    add(b, fake_job(3))
    b.cancel(left)
    assert b.pick(2.0, idle=False).dropped == [late]
    assert numbers(b.pick(2.0, idle=False)) == [3]
