"""Large images wait for memory to be decoded and encoded with; what is small never does."""

import asyncio

import pytest

from app.admission.counters import Counters
from app.admission.fields import Total
from app.pipeline.codec_memory import LEAST, PER_PROCESS, SMALL, CodecMemory, budget_for
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
        async with self._memory.decoding(n_bytes):
            self.entered.append(n_bytes)
            await self.leave.wait()


def test_estimates_together_stay_within_the_budget_and_the_rest_waits_in_order() -> None:
    async def scenario() -> None:
        counters = Counters()
        images = Images(CodecMemory(3 * LARGE, counters))
        async with asyncio.TaskGroup() as group:
            for n in (2, 1, 1, 2):
                group.create_task(images.hold(n * LARGE))
            await settle()
            assert images.entered == [2 * LARGE, LARGE]
            assert counters.total(Total.DECODE_MEMORY) == 3 * LARGE
            images.leave.set()
        assert images.entered == [2 * LARGE, LARGE, LARGE, 2 * LARGE]
        assert counters.total(Total.DECODE_MEMORY) == 0

    asyncio.run(scenario())


def test_an_image_over_the_whole_budget_is_let_in_alone() -> None:
    async def scenario() -> None:
        images = Images(CodecMemory(LARGE))
        async with asyncio.TaskGroup() as group:
            for n in (9, 1):
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


def test_an_image_whose_deadline_passes_while_it_waits_holds_nothing() -> None:
    async def scenario() -> None:
        counters = Counters()
        memory = CodecMemory(LARGE, counters)
        async with memory.decoding(LARGE):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), memory.decoding(LARGE):
                    pytest.fail("there was no memory")
            assert counters.total(Total.DECODE_MEMORY) == LARGE
        async with memory.decoding(LARGE):
            pass

    asyncio.run(scenario())


def test_the_budget_grows_with_the_processes_unless_it_is_set() -> None:
    assert budget_for(0, 2) == LEAST
    assert budget_for(0, 16) == 16 * PER_PROCESS
    assert budget_for(1 << 20, 16) == 1 << 20


def test_encoding_has_a_budget_of_its_own_so_that_no_image_waits_for_itself() -> None:
    async def scenario() -> None:
        counters = Counters()
        memory = CodecMemory(LARGE, counters)
        async with asyncio.timeout(PATIENCE), memory.decoding(LARGE), memory.encoding(LARGE):
            assert counters.total(Total.ENCODE_MEMORY) == LARGE
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), memory.encoding(LARGE):
                    pytest.fail("there was no memory")

    asyncio.run(scenario())
