import asyncio

import httpcore
import pytest

from app.fetch import client_shares
from app.fetch.client_shares import ClientShares


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that wait for turns; `inside` are the clients that have one."""

    def __init__(self, total: int) -> None:
        self.shares = ClientShares(total)
        self.inside: list[str] = []

    async def come(self, *clients: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._one(each)) for each in clients]
        await settle()
        return tasks

    async def _one(self, client: str) -> None:
        await self.shares.take(client)
        self.inside.append(client)

    async def leave(self, client: str) -> None:
        self.inside.remove(client)
        self.shares.give_back(client)
        await settle()


def test_however_much_some_clients_want_the_next_one_finds_a_turn() -> None:
    async def scenario() -> None:
        crowd = Crowd(64)
        tasks = await crowd.come(*"a" * 100)
        assert len(crowd.inside) == 32
        for client in "bcde":
            tasks += await crowd.come(*client * 100)
            assert crowd.inside.count(client) > 0
        assert len(crowd.inside) < 64
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(("total", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (8, 4), (128, 64)])
def test_one_client_leaves_a_turn_where_there_are_several(total: int, most: int) -> None:
    async def scenario() -> None:
        crowd = Crowd(total)
        tasks = await crowd.come(*"a" * (total + 1))
        assert len(crowd.inside) == most
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_a_turn_that_is_given_back_goes_to_the_first_that_may_have_it() -> None:
    async def scenario() -> None:
        crowd = Crowd(2)
        tasks = await crowd.come("a", "a", "b", "c")
        assert crowd.inside == ["a", "b"]
        await crowd.leave("b")
        assert crowd.inside == ["a", "c"]
        await crowd.leave("a")
        assert crowd.inside == ["c", "a"]
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


@pytest.mark.parametrize("given", [False, True])
def test_a_caller_that_is_cancelled_keeps_no_turn(given: bool) -> None:
    async def scenario() -> None:
        crowd = Crowd(1)
        _, waiting = await crowd.come("a", "b")
        if given:
            crowd.shares.give_back("a")
        waiting.cancel()
        await asyncio.wait([waiting])
        if not given:
            crowd.shares.give_back("a")
        await crowd.come("c")
        assert crowd.inside == ["a", "c"]

    asyncio.run(scenario())


def test_a_turn_passes_by_a_caller_that_was_cancelled_at_that_moment() -> None:
    async def scenario() -> None:
        crowd = Crowd(1)
        _, left, waiting = await crowd.come("a", "b", "c")
        left.cancel()
        crowd.shares.give_back("a")
        await waiting
        assert crowd.inside == ["a", "c"]

    asyncio.run(scenario())


def test_few_callers_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_shares, "MOST_WAITING", 1)

    async def scenario() -> None:
        crowd = Crowd(1)
        _, waiting, refused = await crowd.come("a", "b", "c")
        with pytest.raises(httpcore.ConnectError, match="too many"):
            await refused
        waiting.cancel()

    asyncio.run(scenario())
