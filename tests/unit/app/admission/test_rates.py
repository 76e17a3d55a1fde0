import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission import Admission, Limits
from app.admission.counters import Counters, Rate
from models.domain.errors import RateLimited
from tests.unit.app.admission.simulation import admitted


@pytest.mark.parametrize(
    ("text", "rate"), [(None, None), ("10", Rate(10, 10)), ("2.5/40", Rate(2.5, 40))]
)
def test_a_rate_is_images_a_second_and_at_once(text: str | None, rate: Rate | None) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        (Rate(10, 3), [(0, 1, 0), (0, 2, 0), (0, 1, 0.1), (0.1, 1, 0), (0, 1, 0.1)]),
        (Rate(10, 5), [(0, 20, 0), (0, 1, 1.6), (1.6, 1, 0)]),
        (Rate(7, 2), [(0, 2, 0), (0, 1, 1 / 7), (1 / 7 + 1e-6, 1, 0)]),
    ],
    ids=["a burst and then the rate", "more than the burst is paid for later", "as was told"],
)
def test_after_a_pause_an_amount_has_to_wait(
    rate: Rate, steps: list[tuple[float, int, float]]
) -> None:
    counters, now = Counters(), 1000.0
    for pause, amount, wait in steps:
        now += pause
        assert counters.take_rate("a", amount, rate, now) == pytest.approx(wait)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 8)), max_size=60))
def test_no_client_gets_more_than_its_burst_and_its_rate(steps: list[tuple[float, int]]) -> None:
    counters, rate, now, got = Counters(), Rate(4, 8), 1000.0, 0
    for pause, amount in steps:
        now += pause
        if not counters.take_rate("a", amount, rate, now):
            got += amount
        assert got <= rate.burst + rate.per_second * (now - 1000.0) + 1e-6


def test_no_client_is_forgotten_and_few_of_many_wait_for_others() -> None:
    counters, rate, names = Counters(), Rate(1, 1), [f"client {n}" for n in range(2000)]
    assert sum(not counters.take_rate(name, 1, rate, 9.0) for name in names) >= 1970
    assert all(counters.take_rate(name, 1, rate, 9.0) for name in names)


def test_front_ends_share_the_buckets() -> None:
    parent, rate = Counters.create(2), Rate(1, 2)
    assert parent.fd is not None
    one, other = (Counters.attach(parent.fd, 2) for _ in range(2))
    assert one.take_rate("a", 1, rate, 9.0) == 0
    assert other.take_rate("a", 1, rate, 9.0) == 0
    assert one.take_rate("a", 1, rate, 9.0) > 0
    parent.close()


def test_a_request_pays_for_each_of_its_images_and_hears_when_to_come_back() -> None:
    admission = Admission(Limits(100, 100, 100), rate=Rate(2, 4))
    with admitted(admission, 1, 0, "10.0.0.1") as permit:
        permit.grow(3, 0)
    with pytest.raises(RateLimited) as refused:
        admission.enter("10.0.0.1")
    assert 0 < refused.value.retry_after <= 0.5
    admission.enter("10.0.0.2").release()
