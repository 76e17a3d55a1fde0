"""Windows and percentiles."""

import pytest

from app.cli.load.windows import ENOUGH, NOT_SENT, Window, agree, keeps_up, merged, percentile


def window(rate: float, requests: int = ENOUGH) -> Window:
    return Window(seconds=2, images=round(2 * rate), times=[0.1] * requests)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100, 100], False),
        ([100, 102, 104], True),
        ([100, 102, 108], False),
        ([500, 100, 102, 104], True),
        ([0, 0, 0], True),
    ],
)
def test_three_windows_agree_within_five_percent(rates: list[float], expected: bool) -> None:
    assert agree([window(rate) for rate in rates]) is expected


def test_windows_of_few_requests_never_agree() -> None:
    assert not agree([window(100, ENOUGH - 1) for _ in range(3)])


@pytest.mark.parametrize(
    ("sent", "answered", "expected"),
    [(100, 95, True), (100, 94, False), (100, 103, True), (ENOUGH - 1, ENOUGH - 1, False)],
)
def test_a_server_keeps_up_if_it_answers_almost_all_requests(
    sent: int, answered: int, expected: bool
) -> None:
    assert (
        keeps_up([Window(seconds=1, sent=sent), Window(seconds=1, answered=answered)]) is expected
    )


def test_a_server_does_not_keep_up_if_requests_could_not_be_sent() -> None:
    window = Window(seconds=1, sent=100, answered=100)
    window.errors[NOT_SENT] += 1
    assert not keeps_up([window])


def test_windows_are_added_up() -> None:
    first, second = window(100), window(50)
    first.errors["503 overloaded"] += 2
    second.errors["503 overloaded"] += 1
    whole = merged([first, second])
    assert (whole.seconds, whole.images, whole.rate) == (4, 300, 75)
    assert whole.errors == {"503 overloaded": 3}
    assert len(whole.times) == 2 * ENOUGH


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.99, 99), (0.999, 100), (1, 100), (0.001, 1)]
)
def test_percentiles_are_nearest_ranks(share: float, expected: float) -> None:
    assert percentile(range(1, 101), share) == expected


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
