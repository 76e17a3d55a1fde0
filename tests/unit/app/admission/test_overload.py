"""The promises of admission under overload, in virtual time."""

import asyncio

import pytest

from tests.unit.app.admission.simulation import Seen, Simulation, simulated

CAPACITY = 40.0
"""Images a second of the simulated server: two cores, 50 ms each."""


@pytest.mark.parametrize("deadline", [1.0, 30.0])
@pytest.mark.parametrize("load", [1, 2, 5, 20])
@simulated
async def test_goodput_stays_and_what_is_accepted_ends_in_time(load: int, deadline: float) -> None:
    server, warm, seen = Simulation(), Seen(), Seen()
    await server.open_loop("a", CAPACITY / 2, 5, deadline, warm)
    start = server.clock()
    await server.open_loop("a", CAPACITY * load, 12, deadline, seen)
    goodput = seen.rate(start + 4, start + 12)
    assert goodput >= CAPACITY * (0.95 if load > 1 else 0.8), "at 1 arrivals are the limit"
    assert seen.died_of_accepted < 0.01
    assert max(seconds for _, seconds in seen.good) < 5
    late = [at - start for at, seconds in seen.refused if seconds > 0.05]
    assert all(at < 2 for at in late), "the first seconds measure what the server can do"


@pytest.mark.parametrize("deadline", [3.0, 30.0])
@pytest.mark.parametrize("by_turns", [False, True])
@simulated
async def test_large_images_among_small_ones_end_in_time(by_turns: bool, deadline: float) -> None:
    """An image in ten takes twenty times as long, or all images do for five seconds in ten."""
    server, seen, tasks = Simulation(), Seen(), []
    start = server.clock()
    while (now := server.clock() - start) < 20:
        await asyncio.sleep(server.chance.expovariate(100))
        large = now % 10 > 5 if by_turns else server.chance.random() < 0.1
        request = server.request("a", deadline, seen, 20.0 if large else 1.0)
        tasks.append(asyncio.create_task(request))
    await asyncio.gather(*tasks)
    assert seen.died_of_accepted < 0.01
    assert max(seconds for _, seconds in seen.good) < 6
    assert max(seconds for _, seconds in seen.refused) < 0.1


@simulated
async def test_a_server_whose_images_take_five_times_what_was_expected_lets_few_die() -> None:
    server, seen = Simulation(seconds=0.2), Seen()
    await server.closed_loop("a", 1000, 40, 30.0, seen)
    assert seen.died_of_accepted < 0.03
    assert len(seen.good) > 0.9 * 10 * 40


@simulated
async def test_after_an_overload_a_lone_request_is_answered_as_before_within_two_seconds() -> None:
    server, seen, after = Simulation(), Seen(), Seen()
    await server.open_loop("a", 20 * CAPACITY, 5, 2.0, seen)
    start = server.clock()
    while not after.good or after.good[-1][1] > 0.2:
        await server.request("a", 2.0, after)
    assert server.clock() - start < 2


@pytest.mark.parametrize("under_way", [100, 500])
@simulated
async def test_a_flood_of_one_client_hardly_delays_another(under_way: int) -> None:
    server, alone, beside, flood = Simulation(), Seen(), Seen(), Seen()
    await server.open_loop("b", CAPACITY * 0.3, 20, 30.0, alone)
    flooding = server.closed_loop("a", under_way, 30, 30.0, flood)
    async with asyncio.TaskGroup() as group:
        group.create_task(flooding)
        await asyncio.sleep(5)
        group.create_task(server.open_loop("b", CAPACITY * 0.3, 25, 30.0, beside))
    assert beside.p99() < 0.8, "the flood has up to 12 seconds of work in line"
    assert not beside.died
    assert len(beside.refused) <= 0.01 * len(beside.good)
    assert len(flood.good) > 0.5 * CAPACITY * 30


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "cost"), [(2, 0.2), (2, 1.0), (2, 10.0), (4, 1.0), (8, 10.0)])
@simulated
async def test_bulk_at_most_doubles_what_another_client_waits(cores: int, cost: float) -> None:
    """From the second image of the other client on: the first waits for bulk that has begun."""
    server, alone, beside, flood = Simulation(cores), Seen(), Seen(), Seen()
    rate, deadline = 0.2 / server.seconds, 60.0
    await server.open_loop("b", rate, 60, deadline, alone)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.closed_loop("a", 64, 70, deadline, flood, cost))
        await asyncio.sleep(5)
        await server.open_loop("b", rate, 3, deadline, Seen())
        group.create_task(server.open_loop("b", rate, 60, deadline, beside))
    assert beside.p99() <= 2 * alone.p99()
    assert not beside.refused
    assert len(flood.good) * cost * server.seconds >= 0.8 * (cores - 1) * 70


@pytest.mark.parametrize(
    ("cores", "cost"),
    [
        (2, 1.0),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [(1, 1.0), (2, 0.2), (2, 10.0), (8, 1.0)]
        ),
    ],
)
@simulated
async def test_bulk_has_all_cores_and_the_first_image_beside_it_waits_for_one_that_has_begun(
    cores: int, cost: float
) -> None:
    """The flood is more than may be past the line, so images of it wait there."""
    server, first, flood = Simulation(cores), Seen(), Seen()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.closed_loop("a", 32 + 32 * cores, 40, 60.0, flood, cost))
        await asyncio.sleep(20)
        await server.request("b", 60.0, first)
    ((at, seconds),) = first.good
    assert seconds <= 1.3 * server.seconds * (1 + cost) + 0.001
    assert cost * flood.rate(at - 15, at) >= 0.95 * cores / server.seconds


@simulated
async def test_bulk_gets_its_part_beside_small_clients_that_ask_for_too_much() -> None:
    server, small, flood = Simulation(cores=4, ageing=0.0), Seen(), Seen()
    async with asyncio.TaskGroup() as group:
        group.create_task(server.closed_loop("a", 100, 30, 60.0, flood))
        for client in "bcd":
            group.create_task(server.closed_loop(client, 10, 30, 60.0, small))
    assert len(flood.good) >= 0.8 * len(small.good) / 3


@simulated
async def test_images_that_wait_for_memory_are_part_of_the_wait() -> None:
    server, first, more = Simulation(), Seen(), Seen()
    await server.request("a", 30.0, Seen(), 10.0)
    memory = asyncio.Semaphore(1)
    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(server.request("a", 60.0, first, 10.0, memory))
        await asyncio.sleep(2)
        for _ in range(10):
            group.create_task(server.request("a", 3.0, more, 10.0, memory))
    assert len(more.refused) == 10
    assert max(seconds for _, seconds in more.refused) == 0
    assert not first.died
    assert max(seconds for _, seconds in first.good) < 14, "half as fast as expected"
