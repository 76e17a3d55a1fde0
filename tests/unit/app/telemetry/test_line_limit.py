"""Log lines of frequent events."""

import logging
from collections.abc import Callable

import pytest

from app.telemetry.line_limit import MOST, PERIOD, LineLimit


def test_events_beyond_the_rate_are_counted_and_summed_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now, later = [0.0], list[Callable[[], None]]()
    limit = LineLimit(
        logging.getLogger("test"), "events", lambda: now[0], lambda _, then: later.append(then)
    )
    assert [limit.allows() for _ in range(MOST + 90)] == [True] * MOST + [False] * 90
    assert len(later) == 1
    now[0] = PERIOD
    later.pop()()
    assert caplog.records[0].getMessage() == "90 more events in 1 s, without a line each"
    assert caplog.records[0].__dict__["count"] == 90
    assert limit.allows()
    assert not later
