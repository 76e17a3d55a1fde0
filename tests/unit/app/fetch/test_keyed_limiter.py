import asyncio
from itertools import count

import pytest

from app.admission.counters import ByKey, Counters, Mark, Total
from app.fetch import keyed_limiter
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


def test_clients_without_turns_are_forgotten() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=9, per_key=1))
        crowd.come("a1", client="one")
        crowd.come("a2", client="two")
        crowd.come("b1", client="three")
        await settle()
        assert len(crowd.turns) == 3
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


async def served(crowd: Crowd, total: int) -> list[str]:
    """Let all holders leave, one after the other; return the names in the order of their turns."""
    for _ in range(total):
        crowd.leave.release()
        await settle()
    return [crowd.came.get_nowait() for _ in range(total)]


def test_the_first_turn_of_a_client_is_given_where_others_share_the_cells_of_its_count() -> None:
    counters = Counters()
    cells = counters.key("client mine")
    others = [
        next(name for name in map(str, count()) if counters.key(f"client {name}")[row] == cell)
        for row, cell in enumerate(cells)
    ]

    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=3, per_key=3, counters=counters))
        for client in others:
            crowd.come("a", client=client)
        await settle()
        assert counters.of(cells, ByKey.FETCHES) == 1
        crowd.come("b", client="mine")
        await settle()
        assert crowd.inside == ["a", "a", "b"]
        await crowd.end()

    asyncio.run(scenario())


def test_two_clients_with_many_requests_take_the_only_turn_alternately() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=1, per_key=1))
        crowd.come("a1", client="one")
        crowd.come("b1", "b2", "b3", client="two")
        crowd.come("a2", "a3", client="one")
        await settle()
        assert await served(crowd, 6) == ["a1", "b1", "a2", "b2", "a3", "b3"]
        await crowd.end()
        assert len(crowd.turns) == 0

    asyncio.run(scenario())


def test_clients_take_turns_also_at_one_host() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=8, per_key=1))
        crowd.come("a1", client="one")
        crowd.come("a4", "a5", "a6", client="two")
        crowd.come("a2", "a3", client="one")
        await settle()
        assert await served(crowd, 6) == ["a1", "a4", "a2", "a5", "a3", "a6"]
        await crowd.end()

    asyncio.run(scenario())


def test_of_more_clients_than_turns_each_is_served_before_one_is_served_again() -> None:
    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=64, per_key=99))
        clients = [f"{n}" for n in range(65)]
        for _ in range(3):
            for client in clients:
                crowd.come(f"h{client}", client=client)
        await settle()
        assert len(crowd.inside) == 64
        found = await served(crowd, 3 * 65)
        rounds = [found[start : start + 65] for start in (0, 65, 130)]
        assert all(len(set(each)) == 65 for each in rounds)
        await crowd.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("shared", [False, True], ids=["one front end", "several"])
@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("leaves", [False, True], ids=["turn held", "turn given back"])
def test_all_counts_return_to_zero_whenever_a_request_is_cancelled(
    shared: bool, steps: int, leaves: bool
) -> None:
    parent = Counters.create(1) if shared else None
    counters = Counters.attach(parent.fd or 0, 1) if parent else Counters()

    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(total=1, per_key=1, counters=counters))
        crowd.come("a1", client="one")
        await settle()
        crowd.come("a2", client="two")
        if leaves:
            crowd.leave.release()
        for _ in range(steps):
            await asyncio.sleep(0)
        crowd.tasks[1].cancel()
        await crowd.end()
        assert len(crowd.turns) == counters.total(Total.FETCHES) == 0
        for key in ("host a", "client one", "client two"):
            assert counters.of(counters.key(key), ByKey.FETCHES) == 0

    try:
        asyncio.run(scenario())
    finally:
        if parent:
            parent.close()


def test_a_client_of_one_front_end_gets_a_turn_beside_a_backlog_of_another_one() -> None:
    parent = Counters.create(2)
    assert parent.fd is not None
    busy, idle = (KeyedLimiter(1, 9, Counters.attach(parent.fd, 2)) for _ in range(2))

    async def again_and_again() -> None:
        while True:
            async with busy.take("a", "one"):
                await asyncio.sleep(0)

    async def scenario() -> None:
        tasks = [asyncio.create_task(again_and_again()) for _ in range(3)]
        await settle()
        async with asyncio.timeout(60), idle.take("b", "two"):
            assert len(busy) == len(idle) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(busy) == len(idle) == 0

    try:
        asyncio.run(scenario())
    finally:
        parent.close()


def test_a_turn_of_a_host_that_is_released_is_free_for_all_front_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_limiter, "POLL", 1000.0)  # neither looks again by itself
    parent = Counters.create(2)
    assert parent.fd is not None
    busy, idle = (KeyedLimiter(9, 1, Counters.attach(parent.fd, 2)) for _ in range(2))

    async def scenario() -> None:
        crowd = Crowd(busy)
        crowd.come("a", "a", "a", client="one")
        await settle()
        crowd.leave.release()
        await settle()
        async with asyncio.timeout(60), idle.take("a", "two"):
            assert crowd.inside == []
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)

    try:
        asyncio.run(scenario())
    finally:
        parent.close()


def test_a_client_that_lacks_only_its_share_keeps_no_turn_from_another_front_end() -> None:
    parent = Counters.create(2)
    assert parent.fd is not None
    mine, theirs = (Counters.attach(parent.fd, 2) for _ in range(2))

    async def scenario() -> None:
        crowd = Crowd(KeyedLimiter(4, 9, mine))
        crowd.come("a1", "a2", "a3", "a4", client="one")
        await settle()
        assert crowd.inside == ["a1", "a2", "a3"]
        assert theirs.others(Mark.FETCHES_SINCE, 0) == []
        await crowd.end()

    try:
        asyncio.run(scenario())
    finally:
        parent.close()
