"""Places for open archives: bounded in total and for each client, and given in turn."""

import asyncio

import pytest

from app.archives.places import Places


class Crowd:
    """Tasks that hold a place until they are told to leave, by client."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.holding: list[str] = []
        self._leaving: dict[str, asyncio.Event] = {}

    async def comes(self, name: str) -> asyncio.Task[None]:
        """Let a task ask for a place; the first letter of its name is that of its client."""
        self._leaving[name] = asyncio.Event()
        task = asyncio.create_task(self._stay(name))
        await settled()
        return task

    async def leaves(self, name: str) -> None:
        """Let a task give its place back."""
        self._leaving[name].set()
        await settled()

    async def _stay(self, name: str) -> None:
        async with self.places.hold(name[0]):
            self.holding.append(name)
            await self._leaving[name].wait()
            self.holding.remove(name)


async def settled() -> None:
    """Let all tasks do what they can do now."""
    for _ in range(9):
        await asyncio.sleep(0)


def test_one_client_leaves_a_place_to_another() -> None:
    async def scenario() -> None:
        crowd = Crowd(Places(3, 2))
        for name in ("a1", "a2", "a3", "b1"):
            await crowd.comes(name)
        assert crowd.holding == ["a1", "a2", "b1"]
        await crowd.leaves("b1")
        assert crowd.holding == ["a1", "a2"]
        await crowd.leaves("a1")
        assert crowd.holding == ["a2", "a3"]

    asyncio.run(scenario())


def test_a_free_place_goes_to_the_client_with_the_fewest_and_then_in_turn() -> None:
    async def scenario() -> None:
        crowd = Crowd(Places(2, 2))
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
            await crowd.comes(name)
        assert crowd.holding == ["a1", "a2"]
        await crowd.leaves("a1")
        assert crowd.holding == ["a2", "b1"]
        await crowd.leaves("a2")
        assert crowd.holding == ["b1", "a3"]
        await crowd.leaves("b1")
        assert crowd.holding == ["a3", "c1"]
        await crowd.leaves("a3")
        assert crowd.holding == ["c1", "b2"]
        await crowd.leaves("c1")
        assert crowd.holding == ["b2", "a4"]

    asyncio.run(scenario())


def test_a_cancelled_task_holds_no_place_and_keeps_none_from_others() -> None:
    async def scenario() -> None:
        places = Places(1, 1)
        crowd = Crowd(places)
        holder, waiter = await crowd.comes("a1"), await crowd.comes("b1")
        await crowd.comes("b2")
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        given = await crowd.comes("c1")
        await crowd.leaves("a1")
        assert crowd.holding == ["b2"]
        crowd._leaving["b2"].set()
        await asyncio.sleep(0)
        assert places._held["c"] == 1, "the place is given, and the task has not resumed"
        given.cancel()
        await settled()
        assert (holder.done(), crowd.holding, len(places)) == (True, [], 0)
        await crowd.comes("d1")
        assert crowd.holding == ["d1"]

    asyncio.run(scenario())
