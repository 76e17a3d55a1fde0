import asyncio
from contextlib import suppress

import pytest

from app.admission import Admission, Amount, Limits, Permit
from app.admission.counts.counters import Counters
from app.admission.line.line import FairLine
from app.admission.prediction.cost import LASTS
from app.admission.prediction.forecast import Forecast
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded, Draining, Overloaded, TooLarge
from models.domain.job import ReleaseReason, Trace


def door() -> Admission:
    return Admission(Limits(images=8, bytes=100, arriving=100))


def test_a_permit_is_given_back_when_its_block_ends_by_an_error() -> None:
    admission = door()
    with pytest.raises(RuntimeError), admission.admit(2, 10):
        raise RuntimeError
    assert admission.held == Amount(0, 0)


@pytest.mark.parametrize(("images", "n_bytes"), [(7, 0), (1, 95)])
def test_what_does_not_fit_beside_the_others_is_shed(images: int, n_bytes: int) -> None:
    admission = door()
    with admission.admit(2, 10), pytest.raises(Overloaded):
        admission.admit(images, n_bytes)


def test_what_could_never_fit_is_too_large_rather_than_overload() -> None:
    with pytest.raises(TooLarge):
        door().admit(9, 0)


def test_a_refused_growth_keeps_what_was_held() -> None:
    admission = door()
    with admission.admit(6, 0), admission.admit(1, 0) as permit:
        with pytest.raises(Overloaded):
            permit.grow(2, 0)
        assert admission.held == Amount(7, 0)
    assert admission.held == Amount(0, 0)


def test_a_draining_server_admits_nobody() -> None:
    admission = door()
    admission.draining = True
    with pytest.raises(Draining):
        admission.admit(1, 0)


def test_work_that_overtakes_its_clients_line_is_refused_only_if_even_that_is_late() -> None:
    admission = Admission(Limits(64, 1 << 20, 1 << 20))
    forecast, key = admission.forecast, admission.counters.key("client a")
    forecast.capacity.per_second = 1.0
    forecast.charge(key, 20_000_000)
    predicted: dict[tuple[str, float], float] = {}
    forecast.overtaking = lambda client, seconds: predicted.get((client, seconds))
    cheap = 100_000
    assert forecast.too_late(key, 25.0, cheap, client="a")
    predicted["a", 0.1] = 1.0
    assert forecast.too_late(key, 25.0, cheap, client="a") is None
    assert forecast.too_late(key, 1.4, cheap, client="a")
    assert forecast.too_late(key, 25.0, 10 * cheap, client="a")
    assert admission.refusal("a", 25.0, 10, None) is not None
    predicted["a", 0.0] = 1.0
    assert admission.refusal("a", 25.0, 10, None) is None
    assert admission.enter("a", Deadline(25.0 + admission.clock())) is not None


def test_retry_after_is_the_wait_of_the_client_and_not_that_of_a_client_with_all_places() -> None:
    admission = door()
    admission.forecast.capacity.per_second = 1.0
    admission.admit(8, 10, "flood")
    admission.forecast.charge(admission.counters.key("client flood"), 20_000_000)
    with pytest.raises(Overloaded) as other:
        admission.admit(1, 10, "other")
    with pytest.raises(Overloaded) as flood:
        admission.admit(1, 10, "flood")
    early = admission.refusal("other", 30.0, 10, None)
    assert early is not None
    assert other.value.retry_after == early.retry_after <= 1.0
    assert flood.value.retry_after == 20.0


def test_work_that_always_expires_costs_at_least_what_was_spent_on_it() -> None:
    now = 0.0
    counters = Counters()
    forecast = Forecast(counters, 1, lambda: now)
    admission = Admission(Limits(8, 100, 100), counters, forecast, clock=lambda: now)
    costs = forecast.costs

    def expire(permit: Permit, seconds: float) -> None:
        nonlocal now
        with suppress(DeadlineExceeded), permit.work("slow", 1000):
            now += seconds
            raise DeadlineExceeded("late")

    with admission.admit(1, 10, "a") as permit:
        expire(permit, 4.0)
        assert costs.estimate("slow", 1000) == costs.measured("slow", 1000) == 4.0
        assert costs.estimate("slow", 500) == 2.0
        assert costs.estimate("slow") == 0.0  # the size may be small
        now = 4.0 + LASTS
        assert costs.estimate("slow", 1000) == 0.0
        expire(permit, 4.0)
        with permit.work("slow", 1000) as work:
            work.trace = Trace(0.0, 0.0, 0.0, 1.0, 0.0, 1, 1, ReleaseReason.FULL)
        assert costs.estimate("slow", 1000) == pytest.approx(1.0, rel=0.01)


def test_what_was_before_expired_work_is_no_part_of_its_cost() -> None:
    now = 0.0
    line = FairLine(8)
    admission = Admission(Limits(8, 100, 100), line=line, clock=lambda: now)
    costs = admission.forecast.costs
    admission.forecast.capacity.per_second = 1.0

    def expire(permit: Permit, seconds: float) -> None:
        nonlocal now
        with suppress(DeadlineExceeded), permit.work("slow", 1000):
            now += seconds
            raise DeadlineExceeded("late")

    async def scenario() -> None:
        await line.take("b", lambda: 3.0, NEVER)
        with admission.admit(1, 10, "a") as permit:
            for spent in (2.0, 5.0):
                expire(permit, spent)
                assert costs.estimate("slow", 1000) == pytest.approx(max(0.0, spent - 3.0))

    asyncio.run(scenario())


def test_a_tiny_image_that_expired_does_not_make_a_photo_of_its_kind_cost_hours() -> None:
    now = 0.0
    counters = Counters()
    forecast = Forecast(counters, 1, lambda: now)
    line = FairLine(1, predict=lambda work: work, clock=lambda: now)
    admission = Admission(Limits(8, 100, 100), counters, forecast, line, clock=lambda: now)

    async def scenario() -> None:
        nonlocal now
        with admission.admit(1, 10, "a") as permit:
            with suppress(DeadlineExceeded), permit.work("new", 1):
                now += 0.005
                raise DeadlineExceeded("late")
            async with permit.turn("new", pixels=lambda: 20_000_000):
                assert forecast.costs.estimate("new", 20_000_000) == pytest.approx(0.005)
                assert forecast.costs.measured("new", 20_000_000) == pytest.approx(0.16)
                other = line.turn("b", lambda: 0.01, Deadline(now + 10.0))
                waits = asyncio.create_task(other.__aenter__())
                await asyncio.sleep(0)
                assert not waits.done()  # it waits, and is not refused
            await waits

    asyncio.run(scenario())
