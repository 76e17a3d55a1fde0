"""Accept headers and ETags."""

import pytest

from app.http.negotiation import MOST_PARTS, names, parse
from models.domain.errors import HeadersTooLarge

OFFERS = ("application/json", "application/x-ndjson", "text/event-stream")


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (None, "application/json"),
        ("", "application/json"),
        (", ;", "application/json"),
        ("*/*", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("application/*;q=0.5, text/event-stream", "text/event-stream"),
        ("application/json;q=0.1, application/x-ndjson;q=0.2", "application/x-ndjson"),
        ("application/json;q=0, */*", "application/x-ndjson"),
        ("TEXT/EVENT-STREAM", "text/event-stream"),
        ("image/png", None),
        ("application/json;q=0", None),
        ("application/json;q=nonsense", None),
    ],
)
def test_the_best_offer_is_the_one_the_client_ranks_highest(
    header: str | None, chosen: str | None
) -> None:
    assert parse(header).best(OFFERS) == chosen


def test_a_wildcard_does_not_name_a_type() -> None:
    assert not parse("*/*, image/*").names("image/png")
    assert parse("image/png;q=0.1").names("image/png")
    assert not parse("image/png;q=0").names("image/png")


@pytest.mark.parametrize("part", [",image/png", ";a=b", ","])
def test_a_header_of_more_parts_than_any_client_needs_is_refused(part: str) -> None:
    header = "application/json" + part * (MOST_PARTS - 1) + " " * 300
    assert parse(header).best(OFFERS) == "application/json"
    with pytest.raises(HeadersTooLarge, match="Accept may have 200"):
        parse(header + part)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("", False),
        ('"a"', True),
        ('W/"a"', True),
        ('"b", "a"', True),
        ('"b", W/"a"', True),
        ("*", False),  # it names no ETag of an answer that is not computed
        ('"b"', False),
        ("a", False),
    ],
)
@pytest.mark.parametrize("etag", ['"a"', 'W/"a"'])
def test_an_etag_is_named_by_weak_and_strong_ones(header: str, named: bool, etag: str) -> None:
    assert names(header, etag) is named
