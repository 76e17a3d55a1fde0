"""The log that people read, and when it is written instead of JSON."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from app.telemetry import logs
from app.telemetry.logs import HumanFormatter


class Screen(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Give the root logger its handlers back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def made(message: str, **values: object) -> logging.LogRecord:
    record = logging.LogRecord("darkroom", logging.WARNING, "x.py", 1, message, (), None)
    vars(record).update(values)
    return record


def test_a_line_has_the_level_the_message_and_the_values_of_the_caller() -> None:
    line = HumanFormatter(colours=False).format(made("slow", seconds=3))
    assert line[8:] == " WARNING  slow  seconds=3"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/a=b", "/a=b"),
        ("/a status=200 client=192.0.2.1", '"/a status=200 client=192.0.2.1"'),
        ('/a" status=200', r'"/a\" status=200"'),
        ("/a\u00a0b", '"/a\u00a0b"'),
        ("", '""'),
    ],
)
def test_a_value_cannot_look_like_others(path: str, shown: str) -> None:
    line = HumanFormatter(colours=False).format(made("request", path=path, status=404))
    assert line[8:] == f" WARNING  request  path={shown} status=404"


def test_private_values_of_libraries_are_left_out() -> None:
    line = HumanFormatter(colours=False).format(made("slow", _ray_timestamp_ns=3))
    assert line[8:] == " WARNING  slow"


def test_control_characters_of_clients_do_not_reach_the_terminal() -> None:
    line = HumanFormatter(colours=False).format(made("\x1b[2Jgone\n", path="/\x9b"))
    assert line.endswith("\\x1b[2Jgone\\x0a  path=/\\x9b")


def test_control_characters_in_a_traceback_do_not_reach_the_terminal() -> None:
    record = made("failed")
    try:
        raise ValueError("\x1b[2J\x9b1m\x07\x7f")
    except ValueError:
        record.exc_info = sys.exc_info()
    time, *lines = HumanFormatter(colours=False).format(record).split("\n")
    assert time.endswith("failed")
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: \\x1b[2J\\x9b1m\\x07\\x7f"


def test_colours_are_ansi_sequences() -> None:
    assert "\x1b[33mWARNING " in HumanFormatter(colours=True).format(made("slow"))


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *format_: str) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure("info", *format_)
    logging.getLogger("darkroom.test").info("hello")
    return stream.getvalue()


def test_a_pipe_gets_the_json_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(written(monkeypatch, io.StringIO()))
    assert [*found] == ["time", "level", "logger", "message"]


def test_a_terminal_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(monkeypatch, Screen())[8:] == " INFO     hello\n"


def test_the_setting_overrides_what_the_stream_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert written(monkeypatch, io.StringIO(), "text").endswith("INFO     hello\n")
    assert json.loads(written(monkeypatch, Screen(), "json"))["message"] == "hello"
