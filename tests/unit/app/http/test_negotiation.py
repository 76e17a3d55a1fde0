import pytest

from app.http import negotiation

OFFERS = ("application/json", "application/x-ndjson", "text/event-stream")


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (None, "application/json"),
        ("", "application/json"),
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
    assert negotiation.best(header, OFFERS) == chosen


def test_a_wildcard_does_not_name_a_type() -> None:
    assert not negotiation.names("*/*, image/*", "image/png")
    assert negotiation.names("image/png;q=0.1", "image/png")
    assert not negotiation.names("image/png;q=0", "image/png")
