"""What front ends count together; each of `several` is one front end of the same server."""

import asyncio
import os
import random
from collections.abc import Iterator

import pytest

from app.admission.counters import MOST_WORKERS, ByKey, Counters, Total, checked
from app.admission.semaphore import FairSemaphore


def memory(limit: int, counters: Counters) -> FairSemaphore:
    """Return the semaphore of a front end for the memory of images."""
    return FairSemaphore(limit, counters, Total.MEMORY)


@pytest.fixture
def several() -> Iterator[list[Counters]]:
    """Return two front ends; both claim as this process, so each has a column of its own."""
    parent = Counters.create(2)
    assert parent.fd is not None
    yield [Counters.attach(parent.fd, 2) for _ in range(2)]
    parent.close()


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
    one, _ = several
    one.add(Total.MEMORY, 7)
    one.add_for(one.key("client a"), ByKey.IMAGES, 7)
    one.forget(os.getpid())
    assert one.total(Total.MEMORY) == one.of(one.key("client a"), ByKey.IMAGES) == 0


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


def test_more_processes_than_columns_are_refused(several: list[Counters]) -> None:
    fd = several[0].fd
    assert fd is not None
    for _ in range(several[0].columns - 2):
        Counters.attach(fd, 2)
    with pytest.raises(RuntimeError, match="columns"):
        Counters.attach(fd, 2)


async def test_a_large_image_is_not_starved_by_the_small_ones_of_another_front_end(
    several: list[Counters],
) -> None:
    large, small = (memory(100, counters) for counters in several)
    ended = asyncio.Event()

    async def small_ones() -> None:
        while not ended.is_set():
            async with small.hold(amount=30):
                await asyncio.sleep(0.001)

    crowd = [asyncio.create_task(small_ones()) for _ in range(4)]
    await asyncio.sleep(0)
    async with asyncio.timeout(100), large.hold(amount=100):
        assert several[0].total(Total.MEMORY) == 100
    ended.set()
    await asyncio.gather(*crowd)


async def test_a_front_end_that_looks_no_more_keeps_nobody_waiting(several: list[Counters]) -> None:
    stuck, other = several
    stuck.set_starving(Total.MEMORY, 1)  # looked when the machine started, and never again
    async with asyncio.timeout(100), memory(10, other).hold(amount=10):
        pass


def test_front_ends_see_each_other_s_work_until_they_have_ended(several: list[Counters]) -> None:
    one, other = several
    one.add_work(0, 500)
    other.add_work(0, 70)
    other.add_work(2, 9)
    assert [[front_end.work_of(n) for n in range(3)] for front_end in several] == 2 * [[570, 0, 9]]
    one.forget(os.getpid())
    assert [other.work_of(n) for n in range(3)] == [0, 0, 0]


def test_too_many_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 128"):
        checked(MOST_WORKERS + 1)
