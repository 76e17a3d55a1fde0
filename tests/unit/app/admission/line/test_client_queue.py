"""The order in which images of one client are served, and the parts that clients get."""

import asyncio
import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission.line.client_queue import LONGEST_OVERTAKEN, SURE, ClientQueue
from app.admission.line.line import FairLine
from app.admission.line.places import small
from app.admission.line.waiting import Waiting
from models.domain.deadline import NEVER, Deadline

COSTS = st.sampled_from([2.0**-n for n in range(8)])
"""Powers of two, which are not rounded."""

ARRIVALS = st.lists(st.tuples(st.floats(0, 6), COSTS), min_size=1, max_size=30)
"""Moments and costs; one server needs less than `LONGEST_OVERTAKEN` for most of them."""


@dataclass(frozen=True, slots=True)
class Served:
    """An image that was served: its number by arrival, and when it came, began and ended."""

    number: int
    cost: float
    came: float
    began: float
    ended: float


def waiting(number: int, cost: Callable[[], float], until: Deadline = NEVER) -> Waiting:
    return Waiting(number, cost, until, small, cost, cost())


def serve(arrivals: Sequence[tuple[float, float]], deadline: float = math.inf) -> list[Served]:
    """Serve the images of one client, one at a time; return them in the order of service."""

    async def scenario() -> list[Served]:
        queue, now = ClientQueue(), 0.0
        coming = list(enumerate(sorted(arrivals)))
        found: list[Served] = []
        while coming or queue.live:
            while coming and coming[0][1][0] <= now:
                number, (came, cost) = coming.pop(0)
                until = Deadline(came + deadline)
                queue.add(waiting(number, partial(float, cost), until), came, math.inf)
            image = queue.first(now)
            if image is None:
                now = coming[0][1][0]
                continue
            image.turn.set_result(None)
            queue.served(image)
            came, cost = sorted(arrivals)[image.number]
            found.append(Served(image.number, cost, came, now, now + cost))
            now += cost
        return found

    return asyncio.run(scenario())


def equal_shares(arrivals: Sequence[tuple[float, float]]) -> list[float]:
    """Return when each image would end if the present images shared one server equally."""
    coming = list(enumerate(sorted(arrivals)))
    ends, now, virtual = [0.0] * len(coming), 0.0, 0.0
    sharing: list[tuple[float, int]] = []
    while coming or sharing:
        next_came = coming[0][1][0] if coming else math.inf
        end = now + (sharing[0][0] - virtual) * len(sharing) if sharing else math.inf
        if next_came < end:
            virtual += (next_came - now) / len(sharing) if sharing else 0.0
            now = next_came
            number, (_, cost) = coming.pop(0)
            heapq.heappush(sharing, (virtual + cost, number))
        else:
            virtual, number = heapq.heappop(sharing)
            now = ends[number] = end
    return ends


@given(ARRIVALS)
def test_no_image_ends_much_later_than_by_equal_shares(
    arrivals: list[tuple[float, float]],
) -> None:
    """One image that has begun is not interrupted, and one is counted when it begins."""
    ends, largest = equal_shares(arrivals), max(cost for _, cost in arrivals)
    for each in serve(arrivals):
        if each.ended - each.came < LONGEST_OVERTAKEN:
            assert each.ended <= ends[each.number] + 2 * largest + 1e-6


@given(st.lists(st.floats(0, 6), min_size=1, max_size=30), COSTS)
def test_images_of_equal_cost_are_served_in_the_order_of_asking(
    moments: list[float], cost: float
) -> None:
    numbers = [each.number for each in serve([(at, cost) for at in moments])]
    assert numbers == sorted(numbers)


@given(ARRIVALS, st.floats(0.1, 60))
def test_nothing_overtakes_an_image_that_is_overdue(
    arrivals: list[tuple[float, float]], deadline: float
) -> None:
    patience = min(LONGEST_OVERTAKEN, deadline / 2)
    served = serve(arrivals, deadline)
    for index, each in enumerate(served):
        for before in served[:index]:
            overdue = before.began >= each.came + patience
            assert not (overdue and before.came > each.came), "it came later and went before"


def test_a_long_image_is_overtaken_only_until_it_is_overdue() -> None:
    flood = [(0.25 * n, 0.25) for n in range(120)]
    served = serve([(0.0, 8.0), *flood])
    began = next(each.began for each in served if each.cost == 8.0)
    assert 8.0 < began <= LONGEST_OVERTAKEN + 0.5


def test_an_image_is_overtaken_only_while_the_order_of_asking_would_still_be_in_time() -> None:
    async def scenario() -> None:
        queue = ClientQueue()
        for number, (cost, slack) in enumerate([(8.0, 5.0), (4.0, 1.0), (0.5, 9.0)]):
            queue.add(waiting(number, partial(float, cost)), 0.0, slack / SURE)
        numbers = [each.number for each in (queue.first(0.5), queue.first(1.0)) if each]
        assert numbers == [2, 0], "the second is overdue, so those before it go first"
        assert [each.number for each in queue.in_order(1.0)] == [0, 1, 2]

    asyncio.run(scenario())


def test_short_work_goes_before_long_work_that_came_first() -> None:
    served = serve([(0.0, 0.5)] * 64 + [(5.0, 1 / 64), (20.0, 1 / 64)], deadline=math.inf)
    waits = [each.ended - each.came for each in served if each.cost < 0.1]
    assert max(waits[:1]) < 2.0, "27 seconds of work of the same client came before it"


def test_an_image_whose_kind_was_not_known_when_it_came_is_ranked_by_what_is_learnt() -> None:
    async def scenario() -> None:
        queue, costs = ClientQueue(), {"long": 0.0, "short": 0.01}
        for number, kind in enumerate(["long", "long", "short"]):
            image = waiting(number, partial(costs.__getitem__, kind))
            queue.add(image, 0.0, math.inf)
        costs["long"] = 1.0
        first = queue.first(now=0.0)
        assert first is not None
        assert first.number == 2

    asyncio.run(scenario())


def test_ended_images_are_forgotten_although_one_waits_all_the_time() -> None:
    async def scenario() -> None:
        queue = ClientQueue()
        queue.add(waiting(0, lambda: 100.0), 0.0, math.inf)
        for number in range(1, 2000):
            image = waiting(number, lambda: 50.0)
            queue.add(image, 0.0, math.inf)
            image.turn.cancel()
            queue.dropped(image)
        held = (queue._by_rank, queue._overdue, queue._sharing)
        assert max(map(len, held)) < 200

    asyncio.run(scenario())


@pytest.mark.parametrize("least", [1, 3])
@given(costs=st.lists(st.tuples(COSTS, COSTS), min_size=5, max_size=40))
def test_clients_with_work_in_line_get_equal_parts_whatever_their_images_cost(
    least: int, costs: list[tuple[float, float]]
) -> None:
    """The bound of start-time fair queueing: the largest image of each client."""

    async def scenario() -> None:
        line, got = FairLine(least), [0.0, 0.0]
        order = list[tuple[int, float]]()

        async def image(client: int, cost: float) -> None:
            async with line.turn("ab"[client], lambda: cost, NEVER):
                order.append((client, cost))
                await asyncio.sleep(0)

        tasks = [
            asyncio.create_task(image(client, pair[client])) for pair in costs for client in (0, 1)
        ]
        await asyncio.gather(*tasks)
        totals = [sum(pair[client] for pair in costs) for client in (0, 1)]
        bound = 2 * sum(max(pair[client] for pair in costs) for client in (0, 1))
        for client, cost in order:
            if got[0] == totals[0] or got[1] == totals[1]:
                break
            got[client] += cost
            assert abs(got[0] - got[1]) <= bound

    asyncio.run(scenario())
