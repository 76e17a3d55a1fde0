"""When colours are written, and what they look like."""

import io

import pytest

from app.system.terminal import Style, has_colours, printable, styled


class Screen(io.StringIO):
    """A stream that a person reads."""

    def isatty(self) -> bool:
        return not self.closed or super().isatty()


CLOSED = Screen()
CLOSED.close()


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Screen(), {}, True),
        (Screen(), {"TERM": "xterm"}, True),
        (Screen(), {"TERM": "dumb"}, False),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (Screen(), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        (Screen(), {"FORCE_COLOR": "0"}, True),
        (io.StringIO(), {"TERM": "xterm"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (io.StringIO(), {"FORCE_COLOR": "0"}, False),
        (CLOSED, {}, False),
    ],
)
def test_a_terminal_has_colours_and_a_pipe_only_if_they_are_demanded(
    stream: io.StringIO, environment: dict[str, str], expected: bool
) -> None:
    assert has_colours(stream, environment) is expected


def test_text_without_colours_is_unchanged() -> None:
    assert styled("ready", Style.GREEN, on=False) == "ready"
    assert styled("ready", Style.BOLD, Style.GREEN) == "\x1b[1;32mready\x1b[0m"


def test_every_control_character_is_escaped() -> None:
    every = "".join(map(chr, (*range(32), *range(127, 160))))
    assert printable(every).isprintable()
    assert printable(every, lines=True) == printable(every).replace("\\x0a", "\n")
    assert printable("grün ✓ \ud800") == "grün ✓ \\ud800"
