"""Turns: bounded in total and for each client, and given in turn."""

import asyncio

import pytest

from app.admission.fair_queue import FairSemaphore, May, at_most, times_free


class Crowd:
    """Tasks that hold a turn until they are told to leave; a name begins with its client."""

    def __init__(self, total: int, may: May) -> None:
        self.turns = FairSemaphore(total, may)
        self.holding: list[str] = []
        self._leaving: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, *names: str) -> list[asyncio.Task[None]]:
        """Let tasks ask for a turn."""
        self._leaving |= {name: asyncio.Event() for name in names}
        tasks = [asyncio.create_task(self._stay(name)) for name in names]
        self._tasks += tasks
        await settled()
        return tasks

    async def leave(self, name: str) -> None:
        """Let a task give its turn back."""
        self._leaving[name].set()
        await settled()

    async def end(self) -> None:
        """End all tasks; then no turn is held, and none is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert len(self.turns) == self.turns.waiting == 0

    async def _stay(self, name: str) -> None:
        async with self.turns.hold(name[0]):
            self.holding.append(name)
            await self._leaving[name].wait()
            self.holding.remove(name)


async def settled() -> None:
    """Let all tasks do what they can do now."""
    for _ in range(9):
        await asyncio.sleep(0)


def numbered(client: str, count: int) -> list[str]:
    return [f"{client}{number}" for number in range(count)]


def test_one_client_leaves_a_turn_to_another() -> None:
    async def scenario() -> None:
        crowd = Crowd(3, at_most(2))
        await crowd.come("a1", "a2", "a3", "b1")
        assert crowd.holding == ["a1", "a2", "b1"]
        await crowd.leave("b1")
        assert crowd.holding == ["a1", "a2"]
        await crowd.leave("a1")
        assert crowd.holding == ["a2", "a3"]
        await crowd.end()

    asyncio.run(scenario())


def test_a_free_turn_goes_to_the_client_with_the_fewest_and_then_in_turn() -> None:
    async def scenario() -> None:
        crowd = Crowd(2, at_most(2))
        await crowd.come("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        assert crowd.holding == ["a1", "a2"]
        await crowd.leave("a1")
        assert crowd.holding == ["a2", "b1"]
        await crowd.leave("a2")
        assert crowd.holding == ["b1", "a3"]
        await crowd.leave("b1")
        assert crowd.holding == ["a3", "c1"]
        await crowd.leave("a3")
        assert crowd.holding == ["c1", "b2"]
        await crowd.leave("c1")
        assert crowd.holding == ["b2", "a4"]
        await crowd.end()

    asyncio.run(scenario())


def test_however_much_some_clients_want_the_next_one_finds_a_turn() -> None:
    async def scenario() -> None:
        crowd = Crowd(64, times_free(1))
        await crowd.come(*numbered("a", 100))
        assert len(crowd.holding) == 32
        for client in "bcde":
            await crowd.come(*numbered(client, 100))
            assert any(name[0] == client for name in crowd.holding)
        assert len(crowd.holding) < 64
        await crowd.end()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("total", "times", "most"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 2), (8, 1, 4), (128, 1, 64), (64, 3, 48), (1, 3, 1)],
)
def test_a_client_that_is_alone_leaves_its_part_free(total: int, times: int, most: int) -> None:
    async def scenario() -> None:
        crowd = Crowd(total, times_free(times))
        await crowd.come(*numbered("a", total + 1))
        assert len(crowd.holding) == most
        await crowd.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("may", [at_most(1), times_free(1)])
def test_two_clients_take_the_only_turn_alternately(may: May) -> None:
    async def scenario() -> None:
        crowd = Crowd(1, may)
        await crowd.come("a1", "b1", "b2", "b3", "a2", "a3")
        for name in ("a1", "b1", "a2", "b2", "a3", "b3"):
            assert crowd.holding == [name]
            await crowd.leave(name)
        await crowd.end()

    asyncio.run(scenario())


def test_a_cancelled_task_holds_no_turn_and_keeps_none_from_others() -> None:
    async def scenario() -> None:
        crowd = Crowd(1, at_most(1))
        (holder, waiter) = await crowd.come("a1", "b1")
        await crowd.come("b2")
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        (given,) = await crowd.come("c1")
        await crowd.leave("a1")
        assert crowd.holding == ["b2"]
        crowd._leaving["b2"].set()
        await asyncio.sleep(0)
        assert crowd.turns._held["c"] == 1, "the turn is given, and the task has not resumed"
        given.cancel()
        await settled()
        assert (holder.done(), crowd.holding, len(crowd.turns)) == (True, [], 0)
        await crowd.come("d1")
        assert crowd.holding == ["d1"]
        await crowd.end()

    asyncio.run(scenario())


def test_a_turn_that_is_free_is_taken_at_once_beside_others_that_wait() -> None:
    async def scenario() -> None:
        crowd = Crowd(4, times_free(1))
        await crowd.come(*numbered("a", 9))
        assert (len(crowd.holding), crowd.turns.waiting) == (2, 7)
        assert not crowd.turns.take_now("a")
        assert crowd.turns.take_now("b")
        crowd.turns.give_back("b")
        await crowd.end()

    asyncio.run(scenario())


def test_with_fewer_turns_than_are_held_none_is_given_until_enough_came_back() -> None:
    async def scenario() -> None:
        crowd = Crowd(3, at_most(3))
        await crowd.come("a1", "a2", "a3", "b1")
        crowd.turns.set_total(2)
        await crowd.leave("a1")
        assert crowd.holding == ["a2", "a3"]
        await crowd.leave("a2")
        assert crowd.holding == ["a3", "b1"]
        crowd.turns.set_total(3)
        await crowd.come("c1")
        assert crowd.holding == ["a3", "b1", "c1"]
        await crowd.end()

    asyncio.run(scenario())
