"""The micro-batcher's rules one by one; `test_batcher_schedules` mixes them at random."""

from functools import partial

import pytest

from models.domain.deadline import Deadline
from models.domain.job import Job, Lane, ReleaseReason
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


def bulk(number: int) -> Job:
    return fake_job(number, lane=Lane.BULK)


def large(number: int, n_pixels: int) -> Job:
    return fake_job(number, n_pixels=n_pixels)


FULL, BUDGET, IDLE = ReleaseReason.FULL, ReleaseReason.BUDGET, ReleaseReason.IDLE
ALONE = BatchLimits(4, 1000, 0.5, alone=lambda job: job.operation == fake_job(key="a").operation)
A, B = partial(fake_job, key="a"), partial(fake_job, key="b")

Waiting = list[tuple[float, Job]]
Batches = list[tuple[float, list[int], ReleaseReason]]


@pytest.mark.parametrize(
    ("limits", "waiting", "batches"),
    [
        (BatchLimits(4, 1000), [(0, A(7))], [(0, [7], IDLE)]),
        (
            BatchLimits(3, 1000),
            [(0, A(n)) for n in range(5)],
            [(0, [0, 1, 2], FULL), (0, [3, 4], IDLE)],
        ),
        (
            ALONE,
            [(0, A(0)), (0, A(1)), (0, B(2)), (0, B(3))],
            [(0, [0], FULL), (0, [1], FULL), (0, [], IDLE), (0.5, [2, 3], ReleaseReason.DELAY)],
        ),
        (
            BatchLimits(4, 1000),
            [(0, A(0)), (0, B(1)), (0, A(2)), (0, B(3))],
            [(0, [0, 2], IDLE), (0, [1, 3], IDLE)],
        ),
        (BatchLimits(4, 1000), [(2, A(1)), (1, B(2))], [(3, [2], IDLE)]),
        (BatchLimits(4, 10), [(0, large(n, 4)) for n in range(3)], [(0, [0, 1], BUDGET)]),
        (BatchLimits(4, 10), [(0, large(0, 50)), (0, A(1))], [(0, [0], BUDGET), (0, [1], IDLE)]),
        (BatchLimits(2, 1000, 0.5), [(0, A(0)), (0, A(1))], [(0, [0, 1], FULL)]),
        (BatchLimits(4, 10, 0.5), [(0, large(0, 10))], [(0, [0], BUDGET)]),
        (BatchLimits(4, 1000), [(0, bulk(1)), (0.5, A(2))], [(0.6, [2], IDLE), (0.6, [1], IDLE)]),
        (BatchLimits(4, 1000, ageing=1.0), [(0, bulk(1)), (0.5, A(2))], [(1.0, [1], IDLE)]),
    ],
    ids=[
        "a lone job goes at once",
        "jobs leave in order",
        "a job that gains nothing from others waits for none",
        "keys share no batch",
        "the oldest head goes first",
        "pixels bound a batch",
        "a larger image is a batch of its own",
        "a full lane does not wait",
        "a lane that fills the budget does not wait",
        "interactive jobs go first",
        "a bulk job that has aged is interactive",
    ],
)
def test_batches_are_formed_by_the_rules(
    limits: BatchLimits, waiting: Waiting, batches: Batches
) -> None:
    b = MicroBatcher(limits)
    for now, job in waiting:
        add(b, job, now)
    found = [(now, b.pick(now)) for now, _, _ in batches]
    assert [(now, numbers(each), each.reason) for now, each in found] == batches


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
