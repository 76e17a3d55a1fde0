"""Large images wait for memory, each for the most it takes; what is small never does."""

import asyncio

import pytest

from app.admission.counters import Counters, Total
from app.pipeline.memory.codec_memory import LEAST, PER_PROCESS, SMALL, CodecMemory, budget_for
from tests.server import PATIENCE

LARGE = 2 * SMALL


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Images:
    """Images that hold memory until they are told to leave; `entered` are their estimates."""

    def __init__(self, memory: CodecMemory) -> None:
        self._memory = memory
        self.entered: list[int] = []
        self.leave = asyncio.Event()

    async def hold(self, n_bytes: int) -> None:
        async with self._memory.hold(n_bytes):
            self.entered.append(n_bytes)
            await self.leave.wait()


def test_estimates_together_stay_within_the_budget_and_the_rest_waits_in_order() -> None:
    async def scenario() -> None:
        counters = Counters()
        images = Images(CodecMemory(6 * LARGE, counters))
        async with asyncio.TaskGroup() as group:
            for n in (3, 2, 2, 3):
                group.create_task(images.hold(n * LARGE))
            await settle()
            assert images.entered == [3 * LARGE, 2 * LARGE]
            assert counters.total(Total.LARGE_MEMORY) == 5 * LARGE
            images.leave.set()
        assert images.entered == [3 * LARGE, 2 * LARGE, 2 * LARGE, 3 * LARGE]
        assert counters.total(Total.LARGE_MEMORY) == 0

    asyncio.run(scenario())


def test_an_image_over_the_whole_budget_is_let_in_alone() -> None:
    async def scenario() -> None:
        images = Images(CodecMemory(8 * LARGE))
        async with asyncio.TaskGroup() as group:
            for n in (9, 5):
                group.create_task(images.hold(n * LARGE))
            await settle()
            assert images.entered == [9 * LARGE]
            images.leave.set()

    asyncio.run(scenario())


def test_small_images_pass_by_those_that_wait() -> None:
    async def scenario() -> None:
        images = Images(CodecMemory(LARGE))
        async with asyncio.TaskGroup() as group:
            for n in (LARGE, LARGE, SMALL):
                group.create_task(images.hold(n))
            await settle()
            assert images.entered == [LARGE, SMALL]
            images.leave.set()

    asyncio.run(scenario())


def test_three_images_are_in_work_on_two_cores_however_little_each_of_them_takes() -> None:
    async def scenario() -> None:
        images = Images(CodecMemory(budget_for(2)))
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(images.hold(SMALL + 1))
            await settle()
            assert len(images.entered) == 3
            images.leave.set()

    asyncio.run(scenario())


def test_an_image_whose_deadline_passes_while_it_waits_holds_nothing() -> None:
    async def scenario() -> None:
        counters = Counters()
        memory = CodecMemory(LARGE, counters)
        async with memory.hold(LARGE):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), memory.hold(LARGE):
                    pytest.fail("there was no memory")
            assert counters.total(Total.HUGE_MEMORY) == LARGE
        async with memory.hold(LARGE):
            pass

    asyncio.run(scenario())


def test_the_budget_grows_with_the_processes() -> None:
    assert budget_for(2) == LEAST
    assert budget_for(16) == 16 * PER_PROCESS


def test_the_largest_images_do_not_keep_the_others_waiting() -> None:
    async def scenario() -> None:
        counters = Counters()
        memory = CodecMemory(4 * LARGE, counters)
        assert [memory.is_huge(n * LARGE) for n in (2, 3)] == [False, True]
        async with asyncio.timeout(PATIENCE), memory.hold(9 * LARGE), memory.hold(2 * LARGE):
            assert counters.total(Total.HUGE_MEMORY) == 4 * LARGE
            assert counters.total(Total.LARGE_MEMORY) == 2 * LARGE
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), memory.hold(3 * LARGE):
                    pytest.fail("there was no memory")

    asyncio.run(scenario())


def test_as_many_parts_run_at_a_time_as_fit_and_never_none() -> None:
    memory = CodecMemory(4 * LARGE)
    assert [memory.at_once(n) for n in (LARGE, 3 * LARGE, 9 * LARGE)] == [4, 1, 1]


def test_work_that_takes_no_memory_of_its_own_is_bounded_by_other_limits_alone() -> None:
    memory = CodecMemory(4 * LARGE)
    assert memory.at_once(0) == memory.limit()


def test_freed_memory_goes_back_to_the_system_once_after_large_images() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        trimmed: asyncio.Queue[None] = asyncio.Queue()

        def trim() -> None:
            loop.call_soon_threadsafe(trimmed.put_nowait, None)

        memory = CodecMemory(8 * LARGE, trim=trim)
        async with memory.hold(SMALL):
            pass
        assert memory.trimming is None
        for _ in range(3):
            async with memory.hold(LARGE):
                pass
        assert memory.trimming is not None
        memory.trimming.cancel()
        memory.trim_now()
        async with asyncio.timeout(PATIENCE):
            await trimmed.get()
        assert memory.trimming is None
        assert trimmed.empty()

    asyncio.run(scenario())
