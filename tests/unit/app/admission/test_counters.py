"""What front ends count together; each of `several` is one front end of the same server."""

import asyncio
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission.counters import MOST_WORKERS, ByKey, Counters, Rate, Total, checked
from app.admission.semaphore import FairSemaphore


def test_a_limit_holds_for_all_front_ends_together(several: list[Counters]) -> None:
    one, other = several
    assert one.take(Total.IMAGES, 6, 10)
    assert not other.take(Total.IMAGES, 5, 10), "and takes nothing"
    assert other.take(Total.IMAGES, 4, 10)
    one.add(Total.IMAGES, -6)
    assert other.total(Total.IMAGES) == 4


def test_front_ends_agree_on_the_cells_of_a_key_and_other_keys_are_not_counted(
    several: list[Counters],
) -> None:
    one, other = several
    assert one.take_for(one.key("client a"), ByKey.IMAGES, 3, 4)
    assert not other.take_for(other.key("client a"), ByKey.IMAGES, 2, 4)
    assert other.take_for(other.key("client b"), ByKey.IMAGES, 2, 4)
    assert other.of(other.key("client c"), ByKey.IMAGES) == 0


def test_a_count_by_key_is_never_too_low_and_mostly_exact_with_a_thousand_keys() -> None:
    counters, chance = Counters(), random.Random(1)
    counts = {f"client {n}": chance.randint(1, 9) for n in range(1000)}
    for name, count in counts.items():
        counters.add_for(counters.key(name), ByKey.IMAGES, count)
    found = {name: counters.of(counters.key(name), ByKey.IMAGES) for name in counts}
    assert all(found[name] >= count for name, count in counts.items())
    few = list(counts)[:50]
    for name in list(counts)[50:]:
        counters.add_for(counters.key(name), ByKey.IMAGES, -counts[name])
    assert sum(counters.of(counters.key(name), ByKey.IMAGES) == counts[name] for name in few) >= 45


def test_servers_hash_differently_so_that_nobody_can_choose_keys_which_collide() -> None:
    assert Counters().key("client a") != Counters().key("client a")


def test_a_front_end_that_ended_holds_nothing_once_its_supervisor_says_so(
    several: list[Counters],
) -> None:
    one, other = several
    for counters, worker, pixels in ((one, 0, 500), (other, 0, 70), (other, 2, 9)):
        counters.add_work(worker, pixels)
    assert [[each.work_of(n) for n in range(3)] for each in several] == 2 * [[570, 0, 9]]
    one.add(Total.MEMORY, 7)
    one.add_for(one.key("client a"), ByKey.IMAGES, 7)
    one.forget(os.getpid())
    assert one.total(Total.MEMORY) == one.of(one.key("client a"), ByKey.IMAGES) == 0
    assert [other.work_of(n) for n in range(3)] == [0, 0, 0]


def test_who_claims_a_column_clears_those_of_processes_that_are_gone() -> None:
    parent = Counters.create(1)
    assert parent.fd is not None
    for _ in range(parent.columns + 1):  # more often than there are columns
        if not (child := os.fork()):
            Counters.attach(parent.fd, 1).add(Total.IMAGES, 5)
            os._exit(0)
        os.waitpid(child, 0)
    assert parent.total(Total.IMAGES) == 5, "the last one's, until somebody looks"
    assert Counters.attach(parent.fd, 1).total(Total.IMAGES) == 0
    parent.close()


def test_more_processes_than_columns_and_too_many_workers_are_refused(
    several: list[Counters],
) -> None:
    fd = several[0].fd
    assert fd is not None
    for _ in range(several[0].columns - 2):
        Counters.attach(fd, 2)
    with pytest.raises(RuntimeError, match="columns"):
        Counters.attach(fd, 2)
    with pytest.raises(ValueError, match="at most 128"):
        checked(MOST_WORKERS + 1)


async def test_a_large_image_is_not_starved_by_the_small_ones_of_another_front_end(
    several: list[Counters],
) -> None:
    large, small = (FairSemaphore(100, counters, Total.MEMORY) for counters in several)
    ended = asyncio.Event()

    async def small_ones() -> None:
        while not ended.is_set():
            async with small.hold(amount=30):
                await asyncio.sleep(0.001)

    crowd = [asyncio.create_task(small_ones()) for _ in range(4)]
    await asyncio.sleep(0)
    async with asyncio.timeout(100), large.hold(amount=100):
        assert large.used == 100
    ended.set()
    await asyncio.gather(*crowd)


async def test_a_front_end_that_looks_no_more_keeps_nobody_waiting(several: list[Counters]) -> None:
    stuck, other = several
    stuck.set_starving(Total.MEMORY, 1)  # looked when the machine started, and never again
    async with asyncio.timeout(100), FairSemaphore(10, other, Total.MEMORY).hold(amount=10):
        pass


@pytest.mark.parametrize(
    ("text", "rate"), [(None, None), ("10", Rate(10, 10)), ("2.5/40", Rate(2.5, 40))]
)
def test_a_rate_is_images_a_second_and_at_once(text: str | None, rate: Rate | None) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        (Rate(10, 3), [(0, 1, 0), (0, 2, 0), (0, 1, 0.1), (0.1, 1, 0), (0, 1, 0.1)]),
        (Rate(10, 5), [(0, 20, 0), (0, 1, 1.6), (1.6, 1, 0)]),
        (Rate(7, 2), [(0, 2, 0), (0, 1, 1 / 7), (1 / 7 + 1e-6, 1, 0)]),
    ],
    ids=["a burst and then the rate", "more than the burst is paid for later", "as was told"],
)
def test_after_a_pause_an_amount_has_to_wait_at_each_front_end(
    rate: Rate, steps: list[tuple[float, int, float]], several: list[Counters]
) -> None:
    now = 1000.0
    for n, (pause, amount, wait) in enumerate(steps):
        now += pause
        assert several[n % 2].take_rate("a", amount, rate, now) == pytest.approx(wait)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 8)), max_size=60))
def test_no_client_gets_more_than_its_burst_and_its_rate(steps: list[tuple[float, int]]) -> None:
    counters, rate, now, got = Counters(), Rate(4, 8), 1000.0, 0
    for pause, amount in steps:
        now += pause
        if not counters.take_rate("a", amount, rate, now):
            got += amount
        assert got <= rate.burst + rate.per_second * (now - 1000.0) + 1e-6


def test_no_client_is_forgotten_and_few_of_many_wait_for_others() -> None:
    counters, rate, names = Counters(), Rate(1, 1), [f"client {n}" for n in range(2000)]
    assert sum(not counters.take_rate(name, 1, rate, 9.0) for name in names) >= 1970
    assert all(counters.take_rate(name, 1, rate, 9.0) for name in names)
