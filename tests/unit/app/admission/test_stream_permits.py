"""Permits of a stream: it waits where a request would be refused."""

import asyncio

import pytest

from app.admission import Admission, StreamPermits
from app.admission import permits as module
from app.admission.counters import Rate
from app.admission.permits import Limits
from models.domain.alarms import alarms
from models.domain.errors import Draining, Overloaded, TooLarge
from tests.unit.app.admission.simulation import admitted, held


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(module, "SHORTEST_PAUSE", 0.001)


LIMITS = Limits(images=2, bytes=1000, arriving=1 << 20)


@pytest.mark.parametrize("parts", [1, 2])
async def test_an_image_waits_until_another_has_ended(parts: int) -> None:
    admission = Admission(LIMITS)
    other = admitted(admission, 2, 0)
    permits = StreamPermits(admission, "a", 60, parts)
    permit = await permits.enter()
    waiting = asyncio.ensure_future(permits.complete(permit, 10))
    await asyncio.sleep(0)
    assert not waiting.done()
    other.release()
    await waiting
    assert held(admission) == (parts, 10)
    assert permit.deadline.remaining(admission.clock()) > 50
    permit.release()
    assert held(admission) == (0, 0)


@pytest.mark.parametrize(
    ("seconds", "gives_up", "n_bytes", "error"),
    [(0.01, False, 0, Overloaded), (60, True, 0, Draining), (60, False, 1001, TooLarge)],
)
async def test_an_image_that_never_fits_or_waits_too_long_or_while_the_server_stops_is_refused(
    seconds: float, gives_up: bool, n_bytes: int, error: type[Exception]
) -> None:
    admission = Admission(LIMITS)
    with admitted(admission, 2, 0):
        permits = StreamPermits(admission, "a", seconds)
        with await permits.enter() as permit:
            if gives_up:
                alarms().end()
            with pytest.raises(error):
                await permits.complete(permit, n_bytes)


async def test_an_image_is_charged_once_however_often_it_asks_for_a_permit() -> None:
    """The first image was charged with the request."""
    rate = Rate(per_second=0.001, burst=10.0)
    admission = Admission(LIMITS, rate=rate)
    permits = StreamPermits(admission, "a", 0.2)
    with await permits.enter() as permit:
        permit.turn(1_000_000_000).__enter__()
    with pytest.raises(Overloaded):
        await permits.enter()
    assert admission.counters.take_rate("a", 10.0, rate, admission.clock()) > 0
    assert admission.counters.take_rate("a", 9.0, rate, admission.clock()) == 0


async def test_bytes_that_arrive_are_counted_once_and_released() -> None:
    admission = Admission(Limits(images=2, bytes=1 << 30, arriving=100_000))
    permits = StreamPermits(admission, "a", 0.01)
    with await permits.enter() as permit:
        await permits.arrives(permit, 60_000)
        await permits.arrives(permit, 30_000)
        other = await permits.enter()
        with pytest.raises(Overloaded):
            await permits.arrives(other, 60_000)
        other.release()
        await permits.complete(permit, 90_000)
        assert held(admission) == (1, 90_000)
        await permits.arrives(await permits.enter(), 60_000)
