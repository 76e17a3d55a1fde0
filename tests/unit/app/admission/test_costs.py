"""What images are expected to cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admission.account import MOST_KINDS, CostModel, Kind

BLUR, SLOW = (Kind("blur", nanoseconds=20.0),), (Kind("nl_means", nanoseconds=880.0),)
PHOTO = 1_000_000


def test_the_cost_of_an_unknown_kind_follows_its_declaration_and_its_pixels() -> None:
    costs = CostModel()
    assert costs.estimate(SLOW, PHOTO) == pytest.approx(0.901)
    assert costs.estimate(SLOW, 12 * PHOTO) == pytest.approx(10.801)
    assert costs.estimate(BLUR, PHOTO) == pytest.approx(0.041)
    assert costs.estimate(BLUR + SLOW, PHOTO) == pytest.approx(0.921)


def test_other_kinds_show_how_fast_this_machine_is() -> None:
    costs = CostModel()
    for _ in range(20):
        costs.learn((Kind(_, nanoseconds=20.0),), PHOTO, 0.0041)
    assert costs.estimate(SLOW, PHOTO) == pytest.approx(0.0901, rel=0.1)


def test_a_size_that_was_not_seen_costs_what_the_nearest_one_does_for_each_pixel() -> None:
    costs = CostModel()
    costs.learn(BLUR, PHOTO, 0.1)
    assert costs.estimate(BLUR, 4 * PHOTO) == pytest.approx(0.4)
    assert costs.estimate(BLUR, 1) == pytest.approx(0.1 / 8), "the cost is that of any image"


def test_a_machine_that_stood_still_does_not_make_an_image_expect_that() -> None:
    costs = CostModel()
    for _ in range(10):
        costs.learn(BLUR, PHOTO, 0.02)
    costs.learn(BLUR, PHOTO, 30.0)
    assert costs.estimate(BLUR, PHOTO) < 0.04
    costs.learn(BLUR, PHOTO, 30.0, completed=False)
    assert costs.estimate(BLUR, PHOTO) < 0.04


def test_a_first_image_that_was_slow_is_forgotten_after_some_others() -> None:
    costs = CostModel()
    costs.learn(BLUR, PHOTO, 30.0)
    assert costs.estimate(BLUR, PHOTO) < 1.0
    for _ in range(8):
        costs.learn(BLUR, PHOTO, 0.02)
    assert costs.estimate(BLUR, PHOTO) < 0.1


def test_a_machine_that_became_slower_is_believed_after_few_images() -> None:
    costs = CostModel()
    for seconds in [0.5] * 50 + [1.0] * 12:
        costs.learn(BLUR, PHOTO, seconds)
    assert costs.estimate(BLUR, PHOTO) > 0.85


def test_a_kind_whose_images_all_expire_costs_at_least_what_they_had() -> None:
    costs = CostModel()
    costs.learn(BLUR, PHOTO, 4.0, completed=False)
    assert costs.estimate(BLUR, PHOTO) == 4.0
    costs.learn(BLUR, PHOTO, 0.1)
    assert costs.estimate(BLUR, PHOTO) == pytest.approx(0.1)


@given(st.lists(st.floats(0.05, 0.2), min_size=60, max_size=100))
def test_the_estimate_stays_within_what_was_measured(measured: list[float]) -> None:
    costs = CostModel()
    for seconds in measured:
        costs.learn(BLUR, PHOTO, seconds)
    assert min(measured) <= costs.estimate(BLUR, PHOTO) <= max(measured)


def test_what_is_remembered_of_kinds_is_bounded() -> None:
    costs = CostModel()
    kinds = [(Kind(n),) for n in range(MOST_KINDS + 10)]
    for each in kinds:
        costs.learn(each, 1000, 0.1)
    assert costs.estimate(kinds[0], 1000) != costs.estimate(kinds[-1], 1000)
