"""Whether and when a request is tried again."""

from datetime import UTC, datetime

import pytest

from darkroom_client import Retries
from darkroom_client.retries import again, again_for_image, retry_after

POLICY = Retries(tries=5, first_pause=1, longest_pause=10)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [
        Retries(tries=9, first_pause=1, longest_pause=10).pause(n, None, None, 1.0)
        for n in range(1, 7)
    ]
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_no_client_comes_back_earlier_than_the_server_says() -> None:
    for chance in (0.0, 0.5, 1.0):
        pause = POLICY.pause(1, 7.0, None, chance)
        assert pause is not None
        assert 7 <= pause <= 7 * 1.25


def test_clients_that_were_refused_together_come_back_at_different_times() -> None:
    assert POLICY.pause(1, 4.0, None, 0.1) != POLICY.pause(1, 4.0, None, 0.9)


def test_the_last_try_has_no_pause_after_it() -> None:
    assert POLICY.pause(4, None, None, 0.5) is not None
    assert POLICY.pause(5, None, None, 0.5) is None


def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    assert POLICY.pause(1, 5.0, 4.0, 0.0) is None
    assert POLICY.pause(1, 3.0, 4.0, 0.0) == 3


def test_a_server_that_is_gone_for_an_hour_is_not_waited_for() -> None:
    assert POLICY.pause(1, 3600.0, None, 0.0) is None


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(given: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": given}, NOW) == seconds


def test_a_huge_number_of_seconds_is_a_long_time() -> None:
    found = retry_after({"retry-after": "9" * 5000}, NOW)
    assert found is not None
    assert found > 1e8


@pytest.mark.parametrize(
    ("status", "headers", "is_problem", "expected"),
    [
        (503, {"retry-after": "1"}, True, True),
        (429, {"retry-after": "1"}, True, True),
        (503, {}, True, False),
        (503, {}, False, True),
        (502, {}, False, True),
        (502, {}, True, False),
        (500, {}, False, False),
        (422, {"retry-after": "1"}, True, False),
        (408, {}, True, True),
    ],
)
def test_the_answers_after_which_a_request_is_tried_again(
    status: int, headers: dict[str, str], is_problem: bool, expected: bool
) -> None:
    assert again(status, headers, is_problem=is_problem) is expected


def test_the_images_that_are_sent_again() -> None:
    assert again_for_image(503, "overloaded", own_deadline=False)
    assert again_for_image(429, "rate_limited", own_deadline=True)
    assert again_for_image(504, "deadline_exceeded", own_deadline=False)
    assert not again_for_image(504, "deadline_exceeded", own_deadline=True)
    assert not again_for_image(503, "weights_missing", own_deadline=False)
    assert not again_for_image(502, "origin_failed", own_deadline=False)
