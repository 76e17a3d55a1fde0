"""What one client may hold of a limit, beside others and alone."""

import asyncio
import itertools
import random
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission import Admission, Limits
from app.admission.counters import ByKey, Counters, Rate, Total
from app.admission.permits import within_share
from models.domain.errors import Draining, Overloaded, RateLimited, TooLarge
from models.domain.job import Lane
from models.settings import Settings
from tests.fakes import FakeClock
from tests.unit.app.admission.simulation import Seen, Simulation, admitted, held, simulated

BULK = (Lane.BULK, True)


def door(images: int = 64, **limits: int) -> Admission:
    limited = Limits(images, 1 << 30, 1 << 29, **limits)
    return Admission(limited, at_once=1, clock=FakeClock(100.0))


def hold(admission: Admission, client: str, most: int) -> int:
    """Return how many images a client gets before it is refused."""
    for n in range(most):
        try:
            admitted(admission, 1, 0, client)
        except Overloaded:
            return n
    return most


def test_a_request_alone_may_hold_everything_and_a_client_leaves_room_for_one_more() -> None:
    with admitted(door(), 64, 0, "a") as permit:
        assert permit.standing() == (Lane.BULK, False)
    with door().enter("a") as permit:
        permit.grow(1, 0)
        permit.grow(63, 0)
    assert hold(door(), "a", 100) == 60
    admission = door()
    admitted(admission, 1, 0, "b")
    assert hold(admission, "a", 100) == 60
    assert hold(admission, "c", 100) > 0


def test_a_cap_for_each_client_holds_although_nobody_else_is_there() -> None:
    admission = door(client_images=3)
    assert [hold(admission, client, 10) for client in "ab"] == [3, 3]
    with pytest.raises(TooLarge, match="DARKROOM_MAX_IMAGES_PER_CLIENT"):
        admitted(door(client_images=3), 4, 0, "a")


@given(st.integers(1, 1000), st.lists(st.integers(0, 7), max_size=400))
def test_clients_never_hold_more_than_the_limit_and_a_newcomer_mostly_gets_a_part(
    limit: int, asks: list[int]
) -> None:
    held = [0] * 8
    for client in asks:
        own, others = held[client] + 1, sum(held) - held[client]
        if own + others <= limit and within_share(own, own + others, limit):
            held[client] += 1
    assert sum(held) <= limit
    free = limit - sum(held)
    assert not free or within_share(1, sum(held) + 1, limit)


def test_limits_are_changed_while_the_server_runs() -> None:
    admission = door(images=2)
    admission.set_limits(Settings(max_images_in_flight=5, rate_limit="1/2"))
    assert (admission.limits.images, admission.rate) == (5, Rate(1, 2))


def test_the_larger_of_two_clients_is_bulk() -> None:
    admission = Admission(Limits(64, 1 << 30, 1 << 29), at_once=8)
    large = [admitted(admission, 1, 0, "a") for _ in range(8)]
    assert large[0].standing() == (Lane.INTERACTIVE, False)
    small = admitted(admission, 1, 0, "b")
    assert (large[0].standing(), small.standing()) == (BULK, (Lane.INTERACTIVE, True))


def test_a_client_may_ask_for_the_bulk_lane_and_not_for_a_better_lane() -> None:
    admission = Admission(Limits(64, 1 << 30, 1 << 29), at_once=2)
    bulk = admission.enter("a", lane=Lane.BULK)
    bulk.grow(1, 0)
    assert (bulk.lane, bulk.standing()) == (Lane.BULK, (Lane.BULK, False))
    many = [admitted(admission, 1, 0, "b") for _ in range(4)]
    assert many[0].standing() == BULK


async def test_jobs_hold_no_places_of_others_and_others_none_of_theirs() -> None:
    admission = Admission(Limits(64, 1 << 30, 1 << 29), at_once=2)
    job = admission.enter("a", lane=Lane.BACKGROUND)
    job.grow(4, 0)
    other = admitted(admission, 1, 0, "a")
    assert held(admission)[0] == 1
    assert (job.lane, other.standing()) == (Lane.BACKGROUND, (Lane.INTERACTIVE, False))
    with ExitStack() as stack:
        for _ in range(2):
            await stack.enter_context(job.turn(1_000_000)).take()
        waiting = asyncio.create_task(job.turn(1_000_000).take())
        await asyncio.sleep(0)
        await stack.enter_context(other.turn(1_000_000)).take()
        assert not waiting.done()
    await waiting


@pytest.mark.parametrize("seed", range(5))
@simulated
async def test_whatever_is_cancelled_and_when_no_permit_and_no_turn_is_lost(seed: int) -> None:
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
    fields = [Total.IMAGES, Total.BYTES, Total.ARRIVING]
    assert [counters.total(field) for field in fields] == [0] * len(fields)
    for client, field in itertools.product("abc", ByKey):
        assert counters.of(counters.key(f"client {client}"), field) == 0
    assert len(server.admission.line.queue) == server.admission.line.left() == 0
    after = Seen()
    await asyncio.gather(*(server.request("d", 30.0, after) for _ in range(20)))
    assert len(after.good) == 20


def test_front_ends_add_up_what_one_client_holds(several: list[Counters]) -> None:
    one, other = (Admission(Limits(10, 1 << 30, 1 << 29), each) for each in several)
    admitted(one, 6, 0, "a")
    with pytest.raises(Overloaded):
        admitted(other, 5, 0, "a")
    admitted(other, 4, 0, "a")
    assert held(one)[0] == 10


def test_a_request_pays_for_each_of_its_images_and_hears_when_to_come_back() -> None:
    admission = Admission(Limits(100, 100, 100), rate=Rate(2, 4))
    with admitted(admission, 1, 0, "10.0.0.1") as permit:
        permit.grow(3, 0)
    with pytest.raises(RateLimited) as refused:
        admission.enter("10.0.0.1")
    assert 0 < refused.value.retry_after <= 0.5
    admission.enter("10.0.0.2").release()


@pytest.mark.parametrize(
    ("others", "own", "error"),
    [((2, 10), (7, 0), Overloaded), ((2, 10), (1, 95), Overloaded), ((0, 0), (9, 0), TooLarge)],
)
def test_a_request_that_does_not_fit_is_refused_and_holds_nothing(
    others: tuple[int, int], own: tuple[int, int], error: type[Exception]
) -> None:
    admission = Admission(Limits(images=8, bytes=100, arriving=100))
    with admitted(admission, *others):
        with pytest.raises(error):
            admitted(admission, *own)
        with admission.enter() as permit:
            permit.grow(1, 0)
            with pytest.raises(error):
                permit.grow(own[0], own[1])
            assert held(admission) == (others[0] + 1, others[1])
    assert held(admission) == (0, 0)


def test_a_draining_server_admits_no_request() -> None:
    admission = door()
    admission.draining = True
    with pytest.raises(Draining):
        admission.enter()


def test_retry_after_is_the_wait_of_the_client_and_not_that_of_a_client_with_all_places() -> None:
    admission = door(images=8)
    for each in [admitted(admission, 1, 1, "flood") for _ in range(7)]:
        each.turn(250_000).__enter__()
    admitted(admission, 1, 0, "third")
    waits = []
    for client in ("other", "flood"):
        with pytest.raises(Overloaded) as refused:
            admitted(admission, 1, 10, client)
        waits.append(refused.value.retry_after)
    assert waits[0] <= 1.0
    assert waits[1] == pytest.approx(1.75)
