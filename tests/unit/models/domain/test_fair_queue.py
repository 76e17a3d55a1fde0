"""Requests for a limited amount, in any order of asking, giving back, cancelling and raising."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from models.domain.fair_queue import FairQueue, Lack

LIMIT = 10
Asked = tuple[str, str, int]
"""The name of a request, its client, and its amount."""


class Amount:
    """An amount of which each request takes a part, and each client at most half."""

    def __init__(self) -> None:
        self.limit = self.free = LIMIT
        self.held = dict[str, int]()
        self.queue = FairQueue[Asked, Asked](self._attempt, self.give_back)
        self.given: list[str] = []

    def lack(self, client: str, amount: int) -> Lack | None:
        if amount > self.free:
            return Lack.ALL
        held = self.held.get(client, 0)
        return Lack.OWN if client != "*" and held and held + amount > LIMIT // 2 else None

    def _attempt(self, asked: Asked, since: int) -> Asked | Lack:
        assert since > 0
        name, client, amount = asked
        if (lack := self.lack(client, amount)) is not None:
            return lack
        self.free -= amount
        self.held[client] = self.held.get(client, 0) + amount
        self.given.append(name)
        return asked

    def give_back(self, grant: Asked) -> None:
        self.free += grant[2]
        self.held[grant[1]] -= grant[2]

    def ends(self, grant: Asked) -> None:
        self.give_back(grant)
        self.queue.wake()

    def ask(
        self, name: str, client: str = "*", amount: int = LIMIT, cost: float = 1.0
    ) -> asyncio.Task[Asked]:
        return asyncio.create_task(self.queue.take(client, (name, client, amount), cost))


ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc*"), st.integers(1, LIMIT // 2)),
    st.tuples(st.sampled_from(["end", "cancel"]), st.just(""), st.integers(0, 99)),
    st.tuples(st.sampled_from(["raise the limit", "go on"]), st.just(""), st.just(0)),
)


async def played(actions: list[tuple[str, str, int]]) -> None:
    """Play the actions, then end all: nothing is lost, and each client keeps its order."""
    amount, asked = Amount(), dict[int, asyncio.Task[Asked]]()
    for number, (action, client, argument) in enumerate(actions):
        done = [n for n in asked if asked[n].done()]
        if action == "ask":
            asked[number] = amount.ask(f"{number}", client, argument)
            await asyncio.sleep(0)
        elif action == "end" and done:
            amount.ends(asked.pop(done[argument % len(done)]).result())
        elif action == "cancel" and (open_ := [n for n in asked if n not in done]):
            asked.pop(open_[argument % len(open_)]).cancel()
        elif action == "raise the limit":
            amount.limit += 1
            amount.free += 1
            amount.queue.wake()
        elif action == "go on":
            await asyncio.sleep(0)
        assert amount.free >= 0
    for _ in range(3):
        await asyncio.sleep(0)
    waiting = [n for n in asked if not asked[n].done()]
    assert len(amount.queue) == len(waiting)
    firsts = {actions[n][1]: n for n in reversed(waiting)}.values()
    lacks = [amount.lack(*actions[n][1:]) for n in firsts]
    assert Lack.ALL in lacks or None not in lacks, "one that fits still waits"
    while asked:
        number = next(n for n in asked if asked[n].done())
        amount.ends(await asked.pop(number))
        await asyncio.sleep(0)
    assert amount.free == amount.limit
    assert len(amount.queue) == 0
    for client in "abc*":
        served = [int(n) for n in amount.given if actions[int(n)][1] == client]
        assert served == sorted(served), "requests of a client lost their order"


@given(st.lists(ACTIONS, max_size=40))
def test_nothing_is_lost_none_waits_that_fits_and_clients_keep_their_order(
    actions: list[tuple[str, str, int]],
) -> None:
    asyncio.run(played(actions))


async def order_of(*asked: tuple[str, float]) -> list[str]:
    """Return the order in which requests get the whole amount; the first letter is the client."""
    amount = Amount()
    first = amount.ask("first")
    await asyncio.sleep(0)
    tasks = [amount.ask(name, name[0], cost=cost) for name, cost in asked]
    await asyncio.sleep(0)
    amount.ends(await first)
    while tasks:
        await asyncio.sleep(0)
        holder = next(task for task in tasks if task.done())
        tasks.remove(holder)
        amount.ends(holder.result())
    return amount.given[1:]


async def test_clients_take_turns_by_what_their_requests_cost() -> None:
    many = [(f"a{n}", 1.0) for n in range(4)]
    found = await order_of(*many, ("b0", 1.0), ("b1", 1.0))
    assert found == ["a0", "b0", "a1", "b1", "a2", "a3"]
    found = await order_of(*many, ("b0", 3.0), ("b1", 1.0))
    assert found == ["a0", "b0", "a1", "a2", "b1", "a3"]


async def test_requests_behind_a_cancelled_one_are_served_if_they_fit() -> None:
    amount = Amount()
    await amount.ask("0", amount=5)
    large, small = amount.ask("1", amount=6), amount.ask("2", amount=5)
    await asyncio.sleep(0)
    assert len(amount.queue) == 2
    assert amount.queue.take_now("*", ("3", "*", 1)) is None, "it would overtake its client's"
    large.cancel()
    assert (await small)[0] == "2"


async def test_all_who_wait_get_the_error_of_a_refusal_and_later_ones_do_not() -> None:
    amount = Amount()
    held = await amount.ask("0")
    waiting = [amount.ask("1"), amount.ask("2", "a", 1)]
    await asyncio.sleep(0)
    amount.queue.refuse(RuntimeError("closed"))
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in found] == ["closed", "closed"]
    amount.ends(held)
    assert (await amount.ask("3"))[0] == "3"
