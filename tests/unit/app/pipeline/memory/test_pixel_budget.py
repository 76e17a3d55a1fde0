import asyncio

import pytest

from app.pipeline.memory.pixel_budget import PixelBudget


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def hold(budget: PixelBudget, pixels: int, entered: list[int], leave: asyncio.Event) -> None:
    async with budget.hold(pixels):
        entered.append(pixels)
        await leave.wait()


def test_who_does_not_fit_waits_and_enters_in_order() -> None:
    async def scenario() -> None:
        budget, entered = PixelBudget(10), list[int]()
        leave = [asyncio.Event() for _ in range(3)]
        tasks = [
            asyncio.create_task(hold(budget, n, entered, e))
            for n, e in zip((7, 6, 2), leave, strict=True)
        ]
        await settle()
        assert entered == [7]
        leave[0].set()
        await settle()
        assert entered == [7, 6, 2]
        leave[1].set()
        leave[2].set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_an_image_larger_than_the_budget_is_let_in_alone() -> None:
    async def scenario() -> None:
        budget, entered, leave = PixelBudget(10), list[int](), asyncio.Event()
        big = asyncio.create_task(hold(budget, 99, entered, leave))
        small = asyncio.create_task(hold(budget, 1, entered, leave))
        await settle()
        assert entered == [99]
        leave.set()
        await asyncio.gather(big, small)
        assert entered == [99, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("late", [False, True])
def test_cancelling_who_waits_or_was_just_let_in_leaves_no_hole(late: bool) -> None:
    async def scenario() -> None:
        budget, entered = PixelBudget(10), list[int]()
        leave = asyncio.Event()
        first = asyncio.create_task(hold(budget, 10, entered, leave))
        waiting = asyncio.create_task(hold(budget, 10, entered, leave))
        await settle()
        if late:
            leave.set()
            await asyncio.sleep(0)
        waiting.cancel()
        leave.set()
        await asyncio.gather(first, waiting, return_exceptions=True)
        async with asyncio.timeout(100), budget.hold(10):
            pass

    asyncio.run(scenario())


def test_it_tells_how_many_images_fit_at_a_time_and_one_always_does() -> None:
    budget = PixelBudget(10)
    assert [budget.fitting(pixels) for pixels in (1, 3, 10, 99)] == [10, 3, 1, 1]
