"""The log that people read, and when it is written instead of JSON."""

import io
import json
import logging
import sys

import pytest

from app.telemetry import logs
from app.telemetry.logs import HumanFormatter
from tests.unit.app.system.test_terminal import Screen


def made(message: str, **values: object) -> logging.LogRecord:
    record = logging.LogRecord("darkroom", logging.WARNING, "x.py", 1, message, (), None)
    vars(record).update(values)
    return record


@pytest.mark.parametrize(
    ("message", "values", "line"),
    [
        ("slow", {"seconds": 3}, "slow  seconds=3"),
        ("slow", {"_ray_timestamp_ns": 3}, "slow"),  # a private value of a library
        ("asked", {"path": "/a=b"}, "asked  path=/a=b"),
        ("asked", {"path": "/a status=200"}, 'asked  path="/a status=200"'),
        ("asked", {"path": '/a" status=200'}, r'asked  path="/a\" status=200"'),
        ("asked", {"path": "/a\u00a0b"}, 'asked  path="/a\u00a0b"'),
        ("asked", {"path": ""}, 'asked  path=""'),
        ("\x1b[2Jgone\n", {"path": "/\x9b"}, r"\x1b[2Jgone\x0a  path=/\x9b"),
    ],
)
def test_a_line_has_values_that_cannot_look_like_others_or_steer_a_terminal(
    message: str, values: dict[str, object], line: str
) -> None:
    found = HumanFormatter(colours=False).format(made(message, **values))
    assert found[8:] == f" WARNING  {line}"


def test_control_characters_in_a_traceback_do_not_reach_the_terminal() -> None:
    record = made("failed")
    try:
        raise ValueError("\x1b[2J\x9b1m\x07\x7f")
    except ValueError:
        record.exc_info = sys.exc_info()
    time, *lines = HumanFormatter(colours=False).format(record).split("\n")
    assert time.endswith("failed")
    assert "\x1b[33mWARNING " in HumanFormatter(colours=True).format(made("slow"))
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: \\x1b[2J\\x9b1m\\x07\\x7f"


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *format_: str) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("info", *format_)
    logging.getLogger("darkroom.test").info("hello")
    return stream.getvalue()


def test_a_pipe_gets_json_and_a_terminal_text_unless_the_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert [*json.loads(written(monkeypatch, io.StringIO()))][:4] == [
        *("time", "level", "logger", "message")
    ]
    assert written(monkeypatch, Screen())[8:] == " INFO     hello\n"
    assert written(monkeypatch, io.StringIO(), "text").endswith("INFO     hello\n")
    assert json.loads(written(monkeypatch, Screen(), "json"))["message"] == "hello"
