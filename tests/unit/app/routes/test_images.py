"""Options that are read on a thread, and parts that are too many."""

from typing import Any

import pytest

from app.http.negotiation import EVERYTHING
from app.routes.images import LONG, are_long, process_wanted
from app.service import Computing
from models.domain.errors import TooLarge

LONG_TEXT = "x" * (LONG + 1)


def nested(depth: int) -> list[Any]:
    """Return a list of lists; Python refuses to write the `repr` of a thousand."""
    found = list[Any]()
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("options", "long"),
    [
        ({}, False),
        ({"versions": LONG_TEXT[1:], "labels": False, "top_k": 5}, False),
        ({"versions": LONG_TEXT}, True),
        ({"versions": [{"ops": [{"name": "invert"}]}] * 8}, False),
        ({"labels": False, "versions": [{"ops": [{"name": "invert"}] * 32}] * 64}, True),
        ({"versions": [{}, {"ops": LONG_TEXT}]}, True),
        ({"ops": nested(980)}, False),
    ],
)
def test_long_texts_and_lists_are_long(options: dict[str, Any], long: bool) -> None:
    assert are_long(options) is long


@pytest.mark.parametrize(("labels", "parts"), [("true", 65), ("false", 64)])
def test_too_many_parts_are_refused_before_any_filter_is_looked_at(labels: str, parts: int) -> None:
    counted: list[int] = []

    def refuse(parts: int) -> None:
        counted.append(parts)
        raise TooLarge("too many")

    given = {"versions": [{"ops": [{"name": "there is no such filter"}]}] * 64, "labels": labels}
    with pytest.raises(TooLarge):
        process_wanted(given, EVERYTHING, Computing(), refuse)
    assert counted == [parts]
