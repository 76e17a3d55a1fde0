"""Copies into and out of slots that take a thread, and what becomes of the slot when they end."""

import asyncio
import threading

import pytest

from models.domain.deadline import NEVER
from tests.fakes import GUARD, fake_job
from tests.worker_fixture import wait_until
from workers.ipc.arena import LARGE, Arena
from workers.ipc.worker_client import ArenaSlots, Pending


def test_a_slot_whose_copy_was_abandoned_is_free_only_when_the_copy_has_ended() -> None:
    started, go_on = threading.Event(), threading.Event()

    def copy() -> None:
        started.set()
        assert go_on.wait(GUARD)

    async def test() -> None:
        arena = Arena.create(LARGE)
        slots = ArenaSlots(arena)
        loop = asyncio.get_running_loop()
        slot = await slots.take(LARGE, NEVER)
        pending = Pending(1, fake_job(), slot, loop.create_future())
        copying = asyncio.create_task(slots.copied(pending, copy))
        await asyncio.to_thread(started.wait, GUARD)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        slots.release(pending)
        waiting = asyncio.create_task(slots.take(LARGE, NEVER))
        await wait_until(lambda: slots.waiting == 1)
        go_on.set()
        assert (await waiting).size == LARGE
        arena.close()

    asyncio.run(test())


def test_a_slot_is_released_once() -> None:
    async def test() -> None:
        arena = Arena.create(2 * LARGE)
        slots = ArenaSlots(arena)
        first = await slots.take(LARGE, NEVER)
        pending = Pending(1, fake_job(), first, asyncio.get_running_loop().create_future())
        slots.release(pending)
        again = await slots.take(LARGE, NEVER)
        slots.release(pending)
        assert again == first
        assert await slots.take(LARGE, NEVER) != again
        arena.close()

    asyncio.run(test())
