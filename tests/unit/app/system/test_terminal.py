"""When colours are written, and what they look like."""

import io

import pytest

from app.system.terminal import Style, has_colours, is_terminal, printable, styled


class Screen(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, True),
    ],
)
def test_a_terminal_has_colours_unless_the_environment_forbids_them(
    environment: dict[str, str], expected: bool
) -> None:
    assert has_colours(Screen(), environment) is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "0"}, False)],
)
def test_a_pipe_has_colours_only_if_they_are_demanded(
    environment: dict[str, str], expected: bool
) -> None:
    assert has_colours(io.StringIO(), environment) is expected


def test_a_closed_stream_is_no_terminal() -> None:
    stream = Screen()
    stream.close()
    assert not is_terminal(io.StringIO())
    assert not has_colours(io.StringIO(), {"TERM": "xterm"})


def test_text_without_colours_is_unchanged() -> None:
    assert styled("ready", Style.GREEN, on=False) == "ready"
    assert styled("ready", Style.BOLD, Style.GREEN) == "\x1b[1;32mready\x1b[0m"


def test_every_control_character_is_escaped() -> None:
    every = "".join(map(chr, (*range(32), *range(127, 160))))
    assert printable(every).isprintable()
    assert printable(every, lines=True) == printable(every).replace("\\x0a", "\n")
    assert printable("grün ✓ \ud800") == "grün ✓ \\ud800"
