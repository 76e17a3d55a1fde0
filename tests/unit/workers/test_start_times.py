"""The seconds of the parts of a start."""

import logging

import pytest

from workers.start_times import StartTimes


def test_parts_follow_each_other_and_equal_ones_are_added_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    moments = iter([10.0, 10.5, 12.0, 12.25])
    times = StartTimes(lambda: next(moments))
    for part in ("imports", "graphs", "imports"):
        times.end(part)
    with caplog.at_level(logging.INFO):
        times.log(logging.getLogger("test"), "GPU 0")
    assert caplog.messages == ["GPU 0 is prepared in 2.25 s: imports 0.75, graphs 1.50"]
