"""How many messages may arrive at the same time."""

import asyncio

import pytest

from app.grpc_service.limits.message_slots import COPIES, FEWEST, MessageSlots


def test_the_slots_times_the_copies_of_the_largest_message_are_the_memory() -> None:
    assert MessageSlots(8 << 20, 256 << 20).total == 32 // COPIES
    assert MessageSlots(8 << 20).total == 8
    assert MessageSlots(1 << 30, 256 << 20).total == FEWEST


def test_one_client_holds_half_of_the_slots_and_all_hold_the_total() -> None:
    async def held() -> None:
        slots, free, most = MessageSlots(1, COPIES * 8), asyncio.Event(), dict[str, int]()

        async def hold(client: str) -> None:
            async with slots.taken(client):
                most[client] = most.get(client, 0) + 1
                await free.wait()

        tasks = [asyncio.create_task(hold(name)) for name in "aaaaaabbbbbbcc"]
        for _ in range(20):
            await asyncio.sleep(0)
        assert most == {"a": 4, "b": 4}
        free.set()
        await asyncio.gather(*tasks)
        assert most == {"a": 6, "b": 6, "c": 2}
        assert not slots._clients

    asyncio.run(held())


def test_a_slot_is_given_back_however_its_block_ends() -> None:
    async def failing() -> None:
        slots = MessageSlots(1, COPIES * 2)
        for _ in range(5):
            with pytest.raises(ValueError, match="no"):
                async with slots.taken("a"):
                    raise ValueError("no")
            taken = asyncio.create_task(_forever(slots))
            await asyncio.sleep(0)
            taken.cancel()
            await asyncio.wait([taken])
        async with slots.taken("a"):
            assert not slots._all.locked()

    asyncio.run(failing())


async def _forever(slots: MessageSlots) -> None:
    async with slots.taken("a"):
        await asyncio.Event().wait()
