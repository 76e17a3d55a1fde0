"""Options that are read on a thread, and parts that are too many."""

from typing import cast

import pytest

from app.http.negotiation import EVERYTHING
from app.routes.images import process_wanted
from app.service import Service
from models.domain.errors import TooLarge


@pytest.mark.parametrize(("labels", "parts"), [("true", 65), ("false", 64)])
def test_too_many_parts_are_refused_before_any_filter_is_looked_at(labels: str, parts: int) -> None:
    counted: list[int] = []

    def refuse(parts: int) -> None:
        counted.append(parts)
        raise TooLarge("too many")

    given = {"versions": [{"ops": [{"name": "there is no such filter"}]}] * 64, "labels": labels}
    with pytest.raises(TooLarge):
        process_wanted(given, EVERYTHING, cast(Service, None), refuse)
    assert counted == [parts]
