"""What one client may hold of a limit, beside others and alone."""

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission import Admission, Limits
from app.admission.account import Kind
from app.admission.counters import ByKey, Counters, Total
from app.admission.line import FairLine, Share
from app.admission.permit import within_share
from app.admission.permits import RESERVED
from models.domain.deadline import NEVER
from models.domain.errors import Overloaded, TooLarge
from models.domain.job import Lane
from models.settings import Settings
from tests.unit.app.admission.simulation import Seen, Simulation, simulate

KINDS = (Kind("k"),)


def door(images: int = 64, **limits: int) -> Admission:
    return Admission(Limits(images, 1 << 30, 1 << 29, **limits))


def hold(admission: Admission, client: str, most: int) -> int:
    """Return how many images a client gets before it is refused."""
    for n in range(most):
        try:
            admission.admit(1, 0, client)
        except Overloaded:
            return n
    return most


def test_a_client_alone_may_hold_everything() -> None:
    assert hold(door(), "a", 100) == 64


def test_beside_others_one_client_leaves_room_for_one_more() -> None:
    admission = door()
    admission.admit(1, 0, "b")
    assert hold(admission, "a", 100) == 60
    assert hold(admission, "c", 100) > 0


def test_once_a_small_client_was_refused_the_large_one_gets_no_more_than_its_part() -> None:
    admission = door()
    held = [admission.admit(1, 0, "a") for _ in range(64)]
    with pytest.raises(Overloaded):
        admission.admit(1, 0, "b")
    held.pop().release()
    with pytest.raises(Overloaded) as refused:
        admission.admit(1, 0, "a")
    assert refused.value.reason == "client_share"
    assert hold(admission, "b", 1) == 1


def test_a_cap_for_each_client_holds_although_nobody_else_is_there() -> None:
    admission = door(client_images=3)
    assert hold(admission, "a", 10) == 3
    assert hold(admission, "b", 10) == 3
    with pytest.raises(TooLarge, match="DARKROOM_MAX_IMAGES_PER_CLIENT"):
        door(client_images=3).admit(4, 0, "a")


@given(st.integers(1, 1000), st.lists(st.integers(0, 7), max_size=400))
def test_clients_never_hold_more_than_the_limit_and_a_newcomer_mostly_gets_a_part(
    limit: int, asks: list[int]
) -> None:
    held = [0] * 8
    for client in asks:
        own, others = held[client] + 1, sum(held) - held[client]
        if own + others <= limit and within_share(own, others, limit, contended=True):
            held[client] += 1
    assert sum(held) <= limit
    free = limit - sum(held)
    assert not free or within_share(1, sum(held), limit, contended=True)


def test_limits_are_changed_while_the_server_runs() -> None:
    admission = door(images=2)
    admission.set_limits(Settings(max_images_in_flight=5, rate_limit="1/2"))
    assert admission.limits.images == 5
    assert admission.rate is not None


def test_the_larger_of_two_clients_is_bulk() -> None:
    admission = door()
    large = [admission.admit(1, 0, "a") for _ in range(8)]
    assert large[0].lane is Lane.INTERACTIVE
    small = admission.admit(1, 0, "b")
    assert (large[0].lane, small.lane) == (Lane.BULK, Lane.INTERACTIVE)


def test_the_background_has_a_lane_and_does_not_count_for_others() -> None:
    admission = door()
    admission.background = admission.counters.key("client jobs")
    job = admission.admit(1, 0, "jobs")
    assert admission.share(admission.background) is Share.SMALL, "alone"
    many = [admission.admit(1, 0, "a") for _ in range(8)]
    assert {each.lane for each in many} == {Lane.INTERACTIVE}
    assert job.lane is Lane.BACKGROUND
    assert admission.share(admission.background) is Share.BULK


def test_the_background_waits_a_while_after_others_were_there() -> None:
    now = [0.0]
    limits = Limits(64, 1 << 30, 1 << 29)
    admission = Admission(limits, clock=lambda: now[0], busy_images=2)
    jobs_key = admission.background = admission.counters.key("client jobs")
    jobs = [admission.admit(1, 0, "jobs") for _ in range(4)]
    assert admission.share(jobs_key) is Share.LARGE, "it fills the device"
    with admission.admit(1, 0, "a"):
        assert admission.share(jobs_key) is Share.BULK
    assert admission.share(jobs_key) is Share.BULK
    now[0] = RESERVED + 0.01
    assert admission.share(jobs_key) is Share.LARGE
    for each in jobs:
        each.release()


def test_a_background_that_yields_waits_for_no_others_and_they_not_for_it() -> None:
    async def scenario() -> None:
        admission = Admission(Limits(64, 1 << 30, 1 << 29), line=FairLine(1), busy_images=2)
        admission.with_background(4)
        admission.background = admission.counters.key("client jobs")
        job, other = admission.admit(4, 0, "jobs"), admission.admit(1, 0, "a")
        async with AsyncExitStack() as held:
            async with asyncio.timeout(10):
                for _ in range(4):
                    await held.enter_async_context(job.turn(KINDS))
                await held.enter_async_context(other.turn(KINDS))

    asyncio.run(scenario())


def test_a_client_alone_is_bulk_while_its_images_wait_in_line() -> None:
    async def scenario() -> None:
        admission = Admission(Limits(64, 1 << 30, 1 << 29), line=FairLine(2), busy_images=2)
        permit = admission.admit(4, 0, "a")
        async with permit.turn(KINDS), permit.turn(KINDS):
            lanes = [permit.lane]
            waiting = asyncio.create_task(permit.turn(KINDS).__aenter__())
            await asyncio.sleep(0)
            lanes.append(permit.lane)
            assert lanes == [Lane.INTERACTIVE, Lane.BULK], "at first it filled the cores"
        await waiting

    asyncio.run(scenario())


def test_clients_take_turns_whatever_they_have_in_line() -> None:
    async def scenario() -> None:
        line, order = FairLine(1), list[str]()

        async def image(client: str) -> None:
            place = await line.take(client, lambda: 0.1, NEVER)
            order.append(client)
            await asyncio.sleep(0)
            line.leave(place)

        tasks = [asyncio.create_task(image("a")) for _ in range(6)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(image("b")) for _ in range(2)]
        await asyncio.gather(*tasks)
        assert "".join(order) == "aababaaa", "two of a were through before b came"

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_cancelled_and_when_no_permit_and_no_turn_is_lost(seed: int) -> None:
    async def scenario() -> None:
        server, seen, chance = Simulation(images=40), Seen(), random.Random(seed)
        tasks = []
        for _ in range(400):
            await asyncio.sleep(chance.expovariate(200))
            client, deadline = chance.choice("abc"), chance.choice([0.05, 0.5, 5.0])
            request = server.request(client, deadline, seen, chance.choice([0.5, 1.0, 3.0]))
            tasks.append(asyncio.create_task(request))
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        counters = server.counters
        fields = [Total.IMAGES, Total.BYTES, Total.ARRIVING, Total.REQUESTS]
        fields += [Total.WORK, Total.PAST, Total.EXPECTED, Total.THROUGH]
        assert [counters.total(field) for field in fields] == [0] * len(fields)
        for field in (ByKey.IMAGES, ByKey.ARRIVING, ByKey.WORK):
            assert not counters.all_of(field).any()
        assert server.admission.line.waiting == 0
        after = Seen()
        await asyncio.gather(*(server.request("d", 30.0, after) for _ in range(20)))
        assert len(after.good) == 20

    simulate(scenario())


def test_front_ends_add_up_what_one_client_holds() -> None:
    parent = Counters.create(2)
    assert parent.fd is not None
    one, other = (
        Admission(Limits(10, 1 << 30, 1 << 29), Counters.attach(parent.fd, 2)) for _ in range(2)
    )
    one.admit(6, 0, "a")
    with pytest.raises(Overloaded):
        other.admit(5, 0, "a")
    other.admit(4, 0, "a")
    assert one.held.images == 10
    parent.close()
