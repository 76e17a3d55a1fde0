"""Refusals that are repeated for milliseconds."""

import pytest

from app.routes.images.recent_refusals import LARGEST, LONGEST, MOST, RecentRefusals, answer
from models.domain.errors import Overloaded, RateLimited, ServiceError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def late(lasts: float) -> Overloaded:
    error = Overloaded("the work before takes 3.0 seconds", 3.0, "deadline")
    error.lasts = lasts
    return error


def uncounted(seconds: float) -> None:
    """Count nothing."""


def test_a_prepared_answer_has_the_bytes_of_the_answer_with_that_id() -> None:
    id_ = "0123456789abcdef" * 2
    prepared = RecentRefusals(Clock()).note(("a",), late(1.0), "/filter", uncounted)
    assert prepared.answer(id_) == answer(late(1.0), "/filter", id_)


def test_a_refusal_is_repeated_while_the_request_would_come_too_late() -> None:
    clock = Clock()
    recent = RecentRefusals(clock)
    prepared = recent.note(("a",), late(0.02), "/filter", uncounted)
    clock.now += 0.019
    assert recent.of(("a",)) is prepared
    assert recent.of(("b",)) is None
    clock.now += 0.002
    assert recent.of(("a",)) is None


def test_a_refusal_is_not_repeated_for_long_because_work_may_be_cancelled() -> None:
    clock = Clock()
    recent = RecentRefusals(clock)
    recent.note(("a",), late(1000.0), "/filter", uncounted)
    clock.now += LONGEST
    assert recent.of(("a",)) is None


@pytest.mark.parametrize(
    "error", [late(0.0), Overloaded("full", 1.0, "images_in_flight"), RateLimited("slow down")]
)
def test_what_may_change_at_any_moment_is_never_repeated(error: ServiceError) -> None:
    recent = RecentRefusals(Clock())
    recent.note(("a",), error, "/filter", uncounted)
    assert recent.of(("a",)) is None


def test_the_number_of_refusals_that_are_remembered_is_bounded() -> None:
    recent = RecentRefusals(Clock())
    for n in range(10 * MOST):
        recent.note((f"{n}",), late(1.0), "/filter", uncounted)
    assert len(recent._prepared) <= MOST


def test_a_request_with_a_long_query_is_not_remembered() -> None:
    recent = RecentRefusals(Clock())
    request = ("client", "/filter", b"q" * LARGEST)
    recent.note(request, late(1.0), "/filter", uncounted)
    assert recent.of(request) is None
