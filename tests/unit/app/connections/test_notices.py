"""Log lines that could come by the thousand."""

import logging

import pytest

from app.connections.notices import INTERVAL, Notices


def test_one_line_of_a_kind_in_an_interval_and_the_next_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    notices = Notices(logging.getLogger("test"), lambda: now[0])
    for n in range(1000):
        notices.warn("a", f"first {n}")
    notices.warn("b", "other")
    now[0] = INTERVAL
    notices.warn("a", "again")
    assert [each.getMessage() for each in caplog.records] == [
        "first 0",
        "other",
        "again (999 more since the last such line)",
    ]
