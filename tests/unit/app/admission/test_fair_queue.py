"""Requests of clients for keys, in any order of asking, giving back and cancelling."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from app.admission.fair_queue import FairQueue, Lack

TOTAL, OF_CLIENT, OF_KEY = 4, 3, 2


@dataclass
class Turns:
    """Turns that are limited in total, for each client and for each key; counts attempts."""

    total: int = TOTAL
    of_client: int = OF_CLIENT
    of_key: int = OF_KEY
    clients: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    tried: list[tuple[str, str]] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = FairQueue(self._attempt, self.give_back, self.clients.__getitem__)

    def lack(self, client: str, key: str) -> Lack | None:
        if self.clients.total() >= self.total:
            return Lack.ALL
        if self.clients[client] >= self.of_client:
            return Lack.CLIENT
        return Lack.KEY if self.keys[key] >= self.of_key else None

    def _attempt(self, client: str, key: str, since: int) -> Lack | None:
        assert since > 0
        self.tried.append((client, key))
        lack = self.lack(client, key)
        if lack is None:
            self.clients[client] += 1
            self.keys[key] += 1
        return lack

    def give_back(self, client: str, key: str) -> None:
        self.clients[client] -= 1
        self.keys[key] -= 1

    def ends(self, client: str, key: str) -> None:
        self.give_back(client, key)
        self.queue.wake()

    def asks(self, client: str, key: str = "", name: str = "") -> asyncio.Task[None]:
        async def ask() -> None:
            await self.queue.take(client, key)
            self.given.append(name or client)

        return asyncio.create_task(ask())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc"), st.sampled_from("xyz")),
    st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 99), st.just("")),
    st.tuples(st.just("go on"), st.just(0), st.just("")),
)
Asked = dict[int, tuple[str, str, asyncio.Task[None]]]


async def played(actions: list[tuple[str, str | int, str]]) -> None:
    turns, asked = Turns(), Asked()
    for number, (action, which, key) in enumerate(actions):
        done = [n for n in asked if asked[n][2].done()]
        if action == "ask":
            asked[number] = str(which), key, turns.asks(str(which), key, f"{number}")
        elif action == "end" and done:
            turns.ends(*asked.pop(done[int(which) % len(done)])[:2])
        elif action == "cancel" and (open_ := [n for n in asked if n not in done]):
            asked.pop(open_[int(which) % len(open_)])[2].cancel()
        elif action == "go on":
            await settle()
    await settle()
    waiting = [n for n in asked if not asked[n][2].done()]
    assert len(turns.queue) == len(waiting)
    assert turns.queue.clients == {asked[n][0] for n in waiting}
    assert all(turns.lack(*asked[n][:2]) for n in waiting), "one that fits still waits"
    assert turns.clients.total() == len(asked) - len(waiting), "a turn was lost"
    while asked:
        client, key, _ = asked.pop(next(n for n in asked if asked[n][2].done()))
        turns.ends(client, key)
        await settle()
    assert len(turns.queue) == turns.clients.total() == turns.keys.total() == 0
    numbers = {n: actions[int(n)][1:] for n in turns.given}
    for wanted in set(numbers.values()):
        served = [int(n) for n, each in numbers.items() if each == wanted]
        assert served == sorted(served), "requests of a client for a key lost their order"


@given(st.lists(ACTIONS, max_size=40))
def test_no_turn_is_lost_and_none_waits_that_fits(
    actions: list[tuple[str, str | int, str]],
) -> None:
    asyncio.run(played(actions))


def test_a_free_turn_goes_to_the_client_that_holds_the_fewest_and_then_in_turn() -> None:
    async def scenario() -> None:
        turns = Turns(total=3, of_client=2, of_key=9)
        tasks = [turns.asks(client) for client in "aabaabbccd"]
        await settle()
        assert turns.given == list("aab")
        for client in "ababc":
            turns.ends(client, "")
            await settle()
        assert turns.given == list("aabcbadc")
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_keys_of_one_client_take_turns() -> None:
    async def scenario() -> None:
        turns = Turns(total=1)
        tasks = [turns.asks("a", name[0], name) for name in ("x1", "x2", "x3", "y1", "z1")]
        await settle()
        for last in ("x1", "x2", "y1", "z1", "x3"):
            assert turns.given[-1] == last
            turns.ends("a", last[0])
            await settle()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_a_key_that_has_nothing_left_is_tried_once_for_all_clients() -> None:
    async def scenario() -> None:
        turns = Turns(total=9, of_key=1)
        tasks = [turns.asks(f"{n}", key) for n in range(6) for key in "xy"]
        await settle()
        turns.tried.clear()
        turns.queue.wake()
        assert sorted(key for _, key in turns.tried) == ["x", "y"]
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_a_client_that_has_all_it_may_have_is_tried_once_for_all_keys() -> None:
    async def scenario() -> None:
        turns = Turns(total=9, of_client=1)
        tasks = [turns.asks("a", f"{n}") for n in range(6)]
        await settle()
        turns.tried.clear()
        turns.queue.wake()
        assert len(turns.tried) == 1
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_where_nothing_is_left_one_attempt_is_made() -> None:
    async def scenario() -> None:
        turns = Turns(total=1)
        tasks = [turns.asks(client, key) for client in "abc" for key in "xyz"]
        await settle()
        turns.tried.clear()
        turns.queue.wake()
        assert len(turns.tried) == 1
        for task in tasks:
            task.cancel()

    asyncio.run(scenario())


def test_a_turn_that_came_with_the_cancellation_goes_to_the_next_one() -> None:
    async def scenario() -> None:
        turns = Turns(total=1)
        tasks = [turns.asks(client) for client in "abc"]
        await settle()
        turns.ends("a", "")
        tasks[1].cancel()
        await settle()
        assert turns.given == ["a", "c"]

    asyncio.run(scenario())


def test_a_request_that_was_cancelled_at_that_moment_is_passed_by() -> None:
    async def scenario() -> None:
        turns = Turns(total=1)
        tasks = [turns.asks(client) for client in "abc"]
        await settle()
        tasks[1].cancel()
        turns.ends("a", "")
        await settle()
        assert turns.given == ["a", "c"]

    asyncio.run(scenario())
