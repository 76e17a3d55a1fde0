"""Images of a job in work: no more than its own limit, and than that of all jobs."""

import asyncio
from dataclasses import replace

import pytest

from app.jobs.runner import JobSlots, SharedSlots
from app.jobs.store.values import Job
from tests.job_store import job


def a_job(id_: str, concurrency: int | None = None, client: str = "me") -> Job:
    return replace(job(id_, client), concurrency=concurrency)


async def turns() -> None:
    """Let every task go on until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("shared", "own", "most"), [(5, 2, 2), (2, 5, 2), (3, None, 3)])
def test_a_job_has_the_smaller_of_both_limits(shared: int, own: int | None, most: int) -> None:
    async def test() -> None:
        slots = JobSlots(SharedSlots(shared), a_job("1", own))
        for _ in range(3):
            taking = [asyncio.create_task(slots.take()) for _ in range(most + 1)]
            await turns()
            assert sum(each.done() for each in taking) == most
            slots.give()
            await asyncio.gather(*taking)
            for _ in range(most):
                slots.give()

    asyncio.run(test())


def test_a_job_that_waits_for_its_own_limit_keeps_no_slot_from_others() -> None:
    async def test() -> None:
        shared = SharedSlots(2)
        limited, other = JobSlots(shared, a_job("1", 1)), JobSlots(shared, a_job("2"))
        await limited.take()
        waiting = asyncio.create_task(limited.take())
        await turns()
        async with asyncio.timeout(10), other:
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        limited.give()
        async with asyncio.timeout(10), limited:
            pass

    asyncio.run(test())


def test_a_job_whose_images_take_long_leaves_half_of_the_slots_to_another_client() -> None:
    """By turns, a job that gives no slot back would soon have all of them."""

    async def test() -> None:
        shared = SharedSlots(10)
        slow, quick = JobSlots(shared, a_job("1")), JobSlots(shared, a_job("2", client="you"))
        held = [asyncio.create_task(slow.take()) for _ in range(30)]  # more wait at any time
        await turns()
        images = [asyncio.create_task(quick.take()) for _ in range(200)]
        await turns()
        for _ in range(5):
            slow.give()  # each of the images of the first ones takes very long, and ends
        done = 0
        for _ in range(60):
            await turns()
            ended = [each for each in images if each.done()]
            for each in ended:
                images.remove(each)
                quick.give()
                done += 1
        await turns()
        assert done == 200
        assert sum(each.done() for each in held) == 15  # then the slow one has all slots again

    asyncio.run(test())


def test_slots_of_cancelled_tasks_are_free() -> None:
    async def test() -> None:
        shared = SharedSlots(1)
        one, other = JobSlots(shared, a_job("1")), JobSlots(shared, a_job("2"))
        for moment in range(4):
            await one.take()
            taking = [asyncio.create_task(each.take()) for each in (other, one, other)]
            await turns()
            if moment % 2:
                one.give()
            for each in taking:
                each.cancel()
            await asyncio.gather(*taking, return_exceptions=True)
            if not moment % 2:
                one.give()
            await asyncio.wait_for(other.take(), 10)
            other.give()

    asyncio.run(test())
