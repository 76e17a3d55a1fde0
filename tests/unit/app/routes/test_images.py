"""Which options of a request are read on a thread."""

from typing import Any

import pytest

from app.routes.images import LONG, MANY, are_long


@pytest.mark.parametrize(
    ("options", "long"),
    [
        ({}, False),
        ({"versions": "x" * LONG, "labels": False, "top_k": 5}, False),
        ({"versions": "x" * (LONG + 1)}, True),
        ({"versions": [{}] * MANY}, False),
        ({"labels": False, "versions": [{}] * (MANY + 1)}, True),
    ],
)
def test_long_texts_and_lists_are_long(options: dict[str, Any], long: bool) -> None:
    assert are_long(options) is long
