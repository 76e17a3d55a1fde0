"""The micro-batcher's rules one by one; `test_batcher_schedules` mixes them at random."""

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


def test_nothing_waiting_gives_nothing_and_no_moment_to_wake() -> None:
    assert batcher().pick(0.0) == Picked([], ReleaseReason.IDLE, [], None)


def test_a_lone_job_goes_at_once_to_an_idle_device() -> None:
    b = batcher()
    add(b, fake_job(7))
    picked = b.pick(0.0)
    assert (numbers(picked), picked.reason) == ([7], ReleaseReason.IDLE)


def test_jobs_leave_in_the_order_they_came() -> None:
    b = batcher(size=3)
    for number in range(5):
        add(b, fake_job(number))
    assert [numbers(b.pick(0.0)), numbers(b.pick(0.0))] == [[0, 1, 2], [3, 4]]


def test_a_full_batch_says_so() -> None:
    b = batcher(size=2)
    add(b, fake_job())
    add(b, fake_job())
    assert b.pick(0.0).reason is ReleaseReason.FULL


def test_a_job_that_gains_nothing_from_company_rides_alone_and_never_waits_for_it() -> None:
    b = MicroBatcher(BatchLimits(4, 1000, 0.5, alone=lambda job: job.operation.batch_key == "a"))
    for number, key in enumerate("aabb"):
        add(b, fake_job(number, key))
    assert [numbers(b.pick(0.0)) for _ in range(3)] == [[0], [1], []]
    assert numbers(b.pick(0.5)) == [2, 3]


def test_jobs_that_ride_alone_are_dropped_up_to_the_last_moment() -> None:
    b = MicroBatcher(BatchLimits(4, 1000, alone=lambda _job: True))
    first, second = add(b, fake_job(1)), add(b, fake_job(2))
    third = add(b, fake_job(3, deadline=Deadline(1.0)))
    assert b.pick(0.0).batch == [first]
    b.cancel(second)
    picked = b.pick(2.0)
    assert (picked.batch, picked.dropped, b.queued_jobs) == ([], [third], 0)


def test_jobs_with_different_keys_never_share_a_batch() -> None:
    b = batcher()
    for number, key in enumerate("abab"):
        add(b, fake_job(number, key))
    assert [numbers(b.pick(0.0)), numbers(b.pick(0.0))] == [[0, 2], [1, 3]]


def test_the_lane_with_the_oldest_head_goes_first() -> None:
    b = batcher()
    add(b, fake_job(1, "late"), now=2.0)
    add(b, fake_job(2, "early"), now=1.0)
    assert numbers(b.pick(3.0)) == [2]


def test_the_pixel_budget_bounds_a_batch() -> None:
    b = batcher(pixels=10)
    for number in range(3):
        add(b, fake_job(number, n_pixels=4))
    picked = b.pick(0.0)
    assert (numbers(picked), picked.reason) == ([0, 1], ReleaseReason.BUDGET)


def test_a_single_image_over_the_budget_rides_alone() -> None:
    b = batcher(pixels=10)
    add(b, fake_job(0, n_pixels=50))
    add(b, fake_job(1))
    picked = b.pick(0.0)
    assert (numbers(picked), picked.reason) == ([0], ReleaseReason.BUDGET)
    assert numbers(b.pick(0.0)) == [1]


def test_a_job_waits_for_others_until_the_delay_is_over() -> None:
    b = batcher(delay=0.5)
    add(b, fake_job(), now=10.0)
    assert b.pick(10.2).wake_at == 10.5
    assert b.pick(10.5).reason is ReleaseReason.DELAY


def test_a_full_lane_does_not_wait_for_the_delay() -> None:
    b = batcher(size=2, delay=0.5)
    add(b, fake_job())
    add(b, fake_job())
    assert b.pick(0.0).reason is ReleaseReason.FULL


def test_a_lane_that_fills_the_pixel_budget_does_not_wait_for_the_delay() -> None:
    b = batcher(pixels=10, delay=0.5)
    add(b, fake_job(n_pixels=10))
    assert b.pick(0.0).reason is ReleaseReason.BUDGET


def test_the_moment_to_wake_is_the_earliest_of_all_lanes() -> None:
    b = batcher(delay=0.5)
    add(b, fake_job(key="late"), now=3.0)
    add(b, fake_job(key="early"), now=2.9)
    assert b.pick(3.0).wake_at == pytest.approx(3.4)


def test_interactive_jobs_go_before_older_bulk_jobs() -> None:
    b = batcher()
    add(b, fake_job(1, lane=Lane.BULK), now=0.0)
    add(b, fake_job(2), now=0.5)
    assert [numbers(b.pick(0.6)), numbers(b.pick(0.6))] == [[2], [1]]


def test_a_bulk_job_that_waited_for_the_ageing_time_counts_as_interactive() -> None:
    b = batcher(ageing=1.0)
    add(b, fake_job(1, lane=Lane.BULK), now=0.0)
    add(b, fake_job(2), now=0.5)
    assert numbers(b.pick(1.0)) == [1]


def test_a_cancelled_job_takes_no_place_in_a_batch() -> None:
    b = batcher(size=2)
    tickets = [add(b, fake_job(number)) for number in range(3)]
    b.cancel(tickets[1])
    assert numbers(b.pick(0.0)) == [0, 2]


def test_a_cancelled_job_leaves_the_counts_at_once() -> None:
    b = batcher()
    add(b, fake_job(n_pixels=5))
    b.cancel(add(b, fake_job(n_pixels=7)))
    assert (b.queued_jobs, b.queued_pixels) == (1, 5)


def test_cancelling_twice_or_after_the_pick_changes_no_count() -> None:
    b = batcher()
    gone, picked = add(b, fake_job()), add(b, fake_job())
    b.cancel(gone)
    b.cancel(gone)
    b.pick(0.0)
    b.cancel(picked)
    assert (b.queued_jobs, b.queued_pixels) == (0, 0)


def test_a_drained_job_can_still_be_cancelled() -> None:
    b = batcher()
    added = add(b, fake_job())
    assert b.drain() == [added]
    b.cancel(added)
    assert (b.queued_jobs, b.queued_pixels) == (0, 0)


def test_an_expired_job_is_dropped_and_takes_no_place() -> None:
    b = batcher(size=2)
    add(b, fake_job(0))
    expired = add(b, fake_job(1, deadline=Deadline(5.0)))
    add(b, fake_job(2))
    picked = b.pick(5.0)
    assert (numbers(picked), picked.dropped) == ([0, 2], [expired])


def test_an_expired_head_is_dropped_although_nothing_is_ripe() -> None:
    b = batcher(delay=9.0)
    expired = add(b, fake_job(deadline=Deadline(5.0)))
    picked = b.pick(5.0)
    assert (picked.batch, picked.dropped, picked.wake_at) == ([], [expired], None)


def test_empty_lanes_leave_nothing_behind() -> None:
    b = batcher()
    for number in range(300):
        add(b, fake_job(key=f"picked {number}"))
        b.pick(0.0)
        b.cancel(add(b, fake_job(key=f"cancelled {number}")))
        add(b, fake_job(key=f"expired {number}", deadline=Deadline(0.0)))
        b.pick(0.0)
    assert b._lanes == {}


def test_bulk_is_served_within_the_ageing_time_under_a_flood_of_interactive_jobs() -> None:
    b = batcher(size=1, ageing=1.0)
    bulk = add(b, fake_job(lane=Lane.BULK), now=0.0)
    served_at = None
    for step in range(100):
        now = step * 0.1
        add(b, fake_job(key="flood"), now)
        if bulk in b.pick(now).batch:
            served_at = now
            break
    assert served_at == pytest.approx(1.0)


class CountedTicket(Ticket):
    """Counts how often the batcher asks whether a job is dead."""

    __slots__ = ()
    looks = 0

    def is_over(self, now: float) -> bool:
        CountedTicket.looks += 1
        return super().is_over(now)


@pytest.mark.parametrize("dies_by", ["cancelling", "expiring"])
def test_the_dead_do_not_slow_the_living(dies_by: str) -> None:
    """However many died, a job is looked at a bounded number of times over its life."""
    b, now, per_pick = batcher(size=8), 0.0, 50
    CountedTicket.looks = 0
    for _ in range(1000):
        for _ in range(per_pick):
            dying = CountedTicket(fake_job(deadline=Deadline(now + 1.0)), lambda _outcomes: None)
            b.add(dying, now)
            if dies_by == "cancelling":
                b.cancel(dying)
        now += 1.0
        b.add(CountedTicket(fake_job(), lambda _outcomes: None), now)
        assert len(b.pick(now).batch) == 1
    assert b.queued_jobs == 0
    assert CountedTicket.looks <= 1000 * (per_pick + 3)


def test_a_lane_of_single_jobs_is_full_with_one() -> None:
    b = MicroBatcher(BatchLimits(4, 1000, alone=lambda _job: True))
    add(b, fake_job())
    assert b.pick(0.0).reason is ReleaseReason.FULL


def test_limits_that_change_hold_for_jobs_that_wait_already() -> None:
    b = batcher(size=4)
    for number in range(4):
        add(b, fake_job(number))
    b.limits = BatchLimits(2, 1000)
    assert numbers(b.pick(0.0)) == [0, 1]


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


def test_expired_jobs_are_looked_at_once_each_however_many_there_are() -> None:
    looks = 0

    class Counting(Deadline):
        def expired(self, now: float) -> bool:
            nonlocal looks
            looks += 1
            return super().expired(now)

    b, n_jobs = batcher(size=8), 3000
    for number in range(n_jobs):
        add(b, fake_job(number % 200, "abc"[number % 3], deadline=Counting(1.0)))
    picked = b.pick(2.0)
    assert (len(picked.dropped), picked.batch, b.queued_jobs) == (n_jobs, [], 0)
    assert looks <= n_jobs + 3
