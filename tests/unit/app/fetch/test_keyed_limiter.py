import asyncio

import pytest

from app.fetch.keyed_limiter import KeyedLimiter


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that take turns; `inside` are the holders of a turn."""

    def __init__(self, turns: KeyedLimiter) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self.leave = asyncio.Semaphore(0)
        self.tasks: list[asyncio.Task[None]] = []
        self.came = asyncio.Queue[str]()

    def come(self, *names: str, client: str = "") -> None:
        """Enter the limiter under the first letter of each name, which is its key."""
        self.tasks += [asyncio.create_task(self._one(name, client)) for name in names]

    async def _one(self, name: str, client: str) -> None:
        async with self.turns.take(name[0], client):
            self.inside.append(name)
            self.came.put_nowait(name)
            try:
                await self.leave.acquire()
            finally:
                self.inside.remove(name)

    async def end(self) -> None:
        for _ in self.tasks:
            self.leave.release()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks, self.leave = [], asyncio.Semaphore(0)


def test_one_key_has_its_limit_and_all_have_theirs() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=3, per_key=2))
        crowd.come("a1", "a2", "a3", "b1", "c1")
        await settle()
        assert crowd.inside == ["a1", "a2", "b1"]
        await crowd.end()

    asyncio.run(scenario())


def test_who_leaves_lets_the_next_in_by_order() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=9, per_key=1))
        crowd.come("a1", "a2", "a3")
        await settle()
        crowd.leave.release()
        await settle()
        assert crowd.inside == ["a2"]
        await crowd.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["holds", "waits for its key", "waits for all"])
def test_who_is_cancelled_keeps_no_turn(victim: int) -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=1, per_key=1))
        crowd.come("a1", "a2", "b1")
        await settle()
        crowd.tasks[victim].cancel()
        await crowd.end()
        crowd.come("a4")
        await settle()
        assert crowd.inside == ["a4"]
        await crowd.end()

    asyncio.run(scenario())


def test_keys_without_users_are_forgotten() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=9, per_key=1))
        crowd.come("a1", "a2", "b1")
        await settle()
        assert len(crowd.turns) == 2
        crowd.tasks[1].cancel()
        await crowd.end()
        assert len(crowd.turns) == 0

    asyncio.run(scenario())


def test_a_client_leaves_turns_to_others_and_takes_more_when_they_are_free() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=8, per_key=2))
        crowd.come(*"abcdefghij", client="one")
        await settle()
        assert crowd.inside == list("abcdef")
        crowd.come("y", client="two")
        await settle()
        assert crowd.inside == [*"abcdef", "y"]
        crowd.leave.release()
        await settle()
        assert crowd.inside == [*"bcdef", "y"]
        crowd.tasks[-1].cancel()
        async with asyncio.timeout(60):
            while await crowd.came.get() != "g":
                pass
        assert crowd.inside == list("bcdefg")
        await crowd.end()
        assert len(crowd.turns) == 0

    asyncio.run(scenario())


def test_the_first_turn_of_a_client_waits_for_no_share() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=1, per_key=1))
        crowd.come("a", "b", client="one")
        await settle()
        assert crowd.inside == ["a"]
        await crowd.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", [False, True], ids=["still waits", "cancelled"])
def test_a_client_that_waits_for_its_share_holds_no_turn_of_a_key(ends: bool) -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=4, per_key=1))
        crowd.come(*"abc", client="one")
        await settle()
        crowd.come("p1", "p2", client="one")
        await settle()
        assert crowd.inside == list("abc")
        if ends:
            crowd.tasks[3].cancel()
        crowd.come("p3", client="two")
        await settle()
        assert crowd.inside == [*"abc", "p3"]
        await crowd.end()
        assert len(crowd.turns) == 0

    asyncio.run(scenario())


def test_a_client_that_waits_for_a_key_holds_nothing_of_its_share() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=4, per_key=1))
        crowd.come("p1", client="two")
        await settle()
        crowd.come("p2", "p3", "p4", "a", "b", client="one")
        await settle()
        assert crowd.inside == ["p1", "a", "b"]
        await crowd.end()

    asyncio.run(scenario())


def test_turns_that_end_together_do_not_give_a_client_more_than_its_share() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=8, per_key=8))
        crowd.come(*[f"a{n}" for n in range(6)], client="one")
        await settle()
        crowd.come(*[f"b{n}" for n in range(30)], client="one")
        await settle()
        for _ in range(6):
            crowd.leave.release()
        async with asyncio.timeout(60):
            for _ in range(12):
                await crowd.came.get()
        await settle()
        assert len(crowd.inside) == 6
        crowd.come("c", client="two")
        await settle()
        assert crowd.inside[-1] == "c"
        await crowd.end()

    asyncio.run(scenario())


def test_a_user_without_a_client_gets_the_turn_that_a_client_gives_back() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=1, per_key=1))
        crowd.come("a", client="one")
        await settle()
        crowd.come("b")
        await settle()
        assert crowd.inside == ["a"]
        crowd.leave.release()
        await settle()
        assert crowd.inside == ["b"]
        await crowd.end()

    asyncio.run(scenario())
