import mmap
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission import Admission, Limits
from app.admission.counters import RATES_SIZE, Counters, Rate, RateTable
from models.domain.errors import RateLimited
from tests.unit.app.admission.simulation import admitted


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def table(clock: Clock) -> RateTable:
    return RateTable(mmap.mmap(-1, RATES_SIZE), b"seed", clock=clock)


@pytest.mark.parametrize(
    ("text", "rate"), [(None, None), ("10", Rate(10, 10)), ("2.5/40", Rate(2.5, 40))]
)
def test_a_rate_is_images_a_second_and_at_once(text: str | None, rate: Rate | None) -> None:
    assert Rate.parse(text) == rate


def test_a_burst_passes_and_then_the_rate_does() -> None:
    clock, rate = Clock(), Rate(10, 3)
    buckets = table(clock)
    assert [buckets.take("a", 1, rate) for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a", 1, rate) == pytest.approx(0.1)
    clock.now += 0.1
    assert buckets.take("a", 1, rate) == 0
    assert buckets.take("a", 1, rate) > 0


def test_more_than_the_burst_at_once_needs_a_full_bucket_and_is_paid_for_later() -> None:
    clock, rate = Clock(), Rate(10, 5)
    buckets = table(clock)
    assert buckets.take("a", 20, rate) == 0
    assert buckets.take("a", 1, rate) == pytest.approx(1.6)
    clock.now += 1.6
    assert buckets.take("a", 1, rate) == 0


def test_a_wait_is_exactly_as_long_as_it_was_told() -> None:
    clock, rate = Clock(), Rate(7, 2)
    buckets = table(clock)
    while not (wait := buckets.take("a", 1, rate)):
        pass
    clock.now += wait + 1e-6
    assert buckets.take("a", 1, rate) == 0


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 8)), max_size=60))
def test_no_client_gets_more_than_its_burst_and_its_rate(steps: list[tuple[float, int]]) -> None:
    clock, rate = Clock(), Rate(4, 8)
    buckets, start, got = table(clock), clock.now, 0
    for pause, amount in steps:
        clock.now += pause
        if not buckets.take("a", amount, rate):
            got += amount
        assert got <= rate.burst + rate.per_second * (clock.now - start) + 1e-6


def test_no_client_is_forgotten_and_few_of_many_wait_for_others() -> None:
    buckets, rate = table(Clock()), Rate(1, 1)
    names = [f"client {n}" for n in range(2000)]
    assert sum(not buckets.take(name, 1, rate) for name in names) >= 1970
    assert all(buckets.take(name, 1, rate) for name in names)


def test_front_ends_share_the_buckets() -> None:
    parent, rate = Counters.create(2), Rate(1, 2)
    assert parent.fd is not None
    one, other = (Counters.attach(parent.fd, 2) for _ in range(2))
    assert one.rates.take("a", 1, rate) == 0
    assert other.rates.take("a", 1, rate) == 0
    assert one.rates.take("a", 1, rate) > 0
    parent.close()


def test_the_lock_of_the_buckets_is_not_that_of_the_columns() -> None:
    parent = Counters.create(1)
    assert parent.fd is not None
    parent.forget(os.getpid())  # takes and frees the first byte
    assert Counters.attach(parent.fd, 1).rates.take("a", 1, Rate(1, 1)) == 0
    parent.close()


def test_a_request_pays_for_each_of_its_images_and_hears_when_to_come_back() -> None:
    admission = Admission(Limits(100, 100, 100), rate=Rate(2, 4))
    with admitted(admission, 1, 0, "10.0.0.1") as permit:
        permit.grow(3, 0)
    with pytest.raises(RateLimited) as refused:
        admission.enter("10.0.0.1")
    assert 0 < refused.value.retry_after <= 0.5
    admission.enter("10.0.0.2").release()
