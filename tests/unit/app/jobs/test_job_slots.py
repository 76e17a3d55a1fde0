"""Images of a job in work: no more than its own limit, and than that of all jobs."""

import asyncio

import pytest

from app.jobs.running.job_in_work import JobSlots


async def turns() -> None:
    """Let every task go on until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("shared", "own", "most"), [(5, 2, 2), (2, 5, 2), (3, None, 3)])
def test_a_job_has_the_smaller_of_both_limits(shared: int, own: int | None, most: int) -> None:
    async def test() -> None:
        slots = JobSlots(asyncio.Semaphore(shared), own)
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
        shared = asyncio.Semaphore(2)
        limited, other = JobSlots(shared, 1), JobSlots(shared, None)
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
