"""Whether and when a request is tried again."""

from datetime import UTC, datetime

import pytest

from darkroom_client import Retries
from darkroom_client.retries import again, again_for_image, retry_after

POLICY = Retries(tries=7, first_pause=1, longest_pause=10)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_pauses_double_up_to_the_longest_and_end_with_the_last_try() -> None:
    pauses = [POLICY.pause(n, None, None, 1.0) for n in range(1, 8)]
    assert pauses == [1, 2, 4, 8, 10, 10, None]


@pytest.mark.parametrize(
    ("told", "left", "chance", "pause"),
    [
        (7.0, None, 0.0, 7.0),
        (7.0, None, 1.0, 8.75),  # clients that were refused together do not come back together
        (5.0, 4.0, 0.0, None),  # beyond the deadline
        (3.0, 4.0, 0.0, 3.0),
        (3600.0, None, 0.0, None),  # gone for an hour
    ],
)
def test_no_client_comes_back_earlier_than_the_server_says(
    told: float, left: float | None, chance: float, pause: float | None
) -> None:
    assert POLICY.pause(1, told, left, chance) == pause


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("9" * 5000, 999999999.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 23:00:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
    ids=range(9),
)
def test_retry_after_is_a_number_or_a_date(given: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": given}, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "headers", "is_problem", "own", "expected"),
    [
        (503, {"retry-after": "1"}, True, False, True),
        (429, {"retry-after": "1"}, True, True, True),
        (503, {}, True, False, False),
        (503, {}, False, False, True),
        (429, {}, True, False, False),
        (429, {}, False, False, True),  # of a proxy that limits the connections of its clients
        (502, {}, False, False, True),
        (502, {}, True, False, False),
        (504, {}, True, False, True),
        (504, {}, True, True, False),
        (504, {}, False, True, True),
        (500, {}, False, False, False),
        (422, {"retry-after": "1"}, True, False, False),
        (408, {}, True, False, True),
    ],
)
def test_the_answers_after_which_a_request_is_tried_again(
    status: int, headers: dict[str, str], is_problem: bool, own: bool, expected: bool
) -> None:
    assert again(status, headers, is_problem=is_problem, own_deadline=own) is expected


@pytest.mark.parametrize(
    ("status", "code", "own", "expected"),
    [
        (503, "overloaded", False, True),
        (429, "rate_limited", True, True),
        (504, "deadline_exceeded", False, True),
        (504, "deadline_exceeded", True, False),
        (503, "weights_missing", False, False),
        (502, "origin_failed", False, False),
    ],
)
def test_the_images_that_are_sent_again(status: int, code: str, own: bool, expected: bool) -> None:
    assert again_for_image(status, code, own_deadline=own) is expected
