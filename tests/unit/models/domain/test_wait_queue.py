"""Requests for a limited amount, in any order of asking, giving back, cancelling and raising."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from models.domain.wait_queue import WaitQueue

LIMIT = 10


class Amount:
    """An amount of which each request takes a part; it notes who was given how much, in order."""

    def __init__(self) -> None:
        self.limit = LIMIT
        self.free = LIMIT
        self.queue: WaitQueue[tuple[int, int], tuple[int, int]] = WaitQueue(
            self._attempt, self.give_back
        )
        self.given: list[int] = []

    def _attempt(self, request: tuple[int, int], since: int) -> tuple[int, int] | None:
        assert since > 0
        name, amount = request
        if amount > self.free:
            return None
        self.free -= amount
        self.given.append(name)
        return name, amount

    def give_back(self, grant: tuple[int, int]) -> None:
        self.free += grant[1]

    def raise_limit(self) -> None:
        self.limit += 1
        self.free += 1
        self.queue.wake()


ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, LIMIT)),
    st.tuples(st.sampled_from(["give back", "cancel"]), st.integers(0, 99)),
    st.tuples(st.sampled_from(["raise the limit", "go on"]), st.just(0)),
)


async def played(actions: list[tuple[str, int]]) -> None:
    """Play the actions against a model: a list of those who wait, in the order of asking."""
    amount, asked = Amount(), dict[int, asyncio.Task[tuple[int, int]]]()
    cancelled = set[int]()
    for number, (action, argument) in enumerate(actions):
        if action == "ask":
            asked[number] = asyncio.create_task(amount.queue.take((number, argument)))
            await asyncio.sleep(0)
        elif action == "give back" and (done := [n for n in asked if asked[n].done()]):
            amount.give_back(asked.pop(done[argument % len(done)]).result())
            amount.queue.wake()
        elif action == "cancel" and (open_ := [n for n in asked if not asked[n].done()]):
            name = open_[argument % len(open_)]
            cancelled.add(name)
            asked[name].cancel()
            await asyncio.gather(asked.pop(name), return_exceptions=True)
        elif action == "raise the limit":
            amount.raise_limit()
        elif action == "go on":
            await asyncio.sleep(0)
        assert amount.free >= 0
        assert amount.given == sorted(amount.given), "a later request was served first"
    await asyncio.sleep(0)
    waiting = [n for n in asked if not asked[n].done()]
    assert len(amount.queue) == len(waiting)
    if waiting:
        assert actions[waiting[0]][1] > amount.free, "the first one fits but waits"
    held = sum(task.result()[1] for task in asked.values() if task.done())
    assert held + amount.free == amount.limit, "an amount was lost"
    for name in list(asked):
        amount.give_back(await asked.pop(name))
        amount.queue.wake()
    assert amount.free == amount.limit
    assert amount.queue.first_since == len(amount.queue) == 0


@given(st.lists(ACTIONS, max_size=30))
def test_requests_are_served_in_order_and_no_amount_is_lost(
    actions: list[tuple[str, int]],
) -> None:
    asyncio.run(played(actions))


def test_a_grant_that_came_with_the_cancellation_goes_to_the_next_one() -> None:
    async def test() -> None:
        amount = Amount()
        all_of_it = await amount.queue.take((0, LIMIT))
        first, second = (asyncio.create_task(amount.queue.take((name, LIMIT))) for name in (1, 2))
        await asyncio.sleep(0)
        amount.give_back(all_of_it)
        amount.queue.wake()
        first.cancel()
        assert (await second) == (2, LIMIT)
        assert first.cancelled()

    asyncio.run(test())


def test_requests_behind_a_cancelled_one_are_served_if_they_fit() -> None:
    async def test() -> None:
        amount = Amount()
        await amount.queue.take((0, 5))
        large = asyncio.create_task(amount.queue.take((1, 6)))
        small = asyncio.create_task(amount.queue.take((2, 5)))
        await asyncio.sleep(0)
        assert len(amount.queue) == 2
        assert amount.queue.take_now((3, 1)) is None
        large.cancel()
        assert await small == (2, 5)

    asyncio.run(test())


def test_all_who_wait_get_the_error_of_a_refusal_and_later_ones_do_not() -> None:
    async def test() -> None:
        amount = Amount()
        held = await amount.queue.take((0, LIMIT))
        waiting = [asyncio.create_task(amount.queue.take((name, 1))) for name in (1, 2)]
        await asyncio.sleep(0)
        amount.queue.refuse(RuntimeError("closed"))
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(each) for each in found] == ["closed", "closed"]
        amount.give_back(held)
        assert await amount.queue.take((3, LIMIT)) == (3, LIMIT)

    asyncio.run(test())
