"""`darkroom bench` against a real server."""

import json

import pytest

from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.e2e.conftest import Running
from tests.ports import free_port

SEPIA = '[{"name": "sepia"}]'

QUICK = ["--warm-up", "0", "--window", "0.2", "--limit", "0.4"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--connections", "2", "--rate", "5"], "/classify"),
        (["--connections", "1", "--images-per-request", "3"], "/classify"),
        (
            ["--connections", "1", "--op", "sepia"],
            "/filter?ops=%5B%7B%22name%22%3A+%22sepia%22%7D%5D",
        ),
    ],
)
def test_the_last_line_is_json_and_a_table_is_for_people(
    words: list[str], path: str, server: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    assert run(["bench", url, *words, "--window", "2", "--limit", "4", "--warm-up", "0"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert (found["path"], found["drawn"]) == (path, True)
    assert all(step["images"] > 0 and not step["errors"] for step in found["steps"])
    assert all(step["client_cores"] > 0 for step in found["steps"])
    assert len(printed.err.splitlines()) == 1 + len(found["steps"])


def test_a_server_that_is_down_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", f"http://127.0.0.1:{free_port()}", *QUICK]) == ExitCode.FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Connection refused" in printed.err


@pytest.mark.parametrize(
    "words",
    [
        ["--connections", "0"],
        ["--connections", "1.5"],
        ["--connections", "1,,2"],
        ["--rate", "fast"],
        ["--rate", "nan"],
        ["--header", "nonsense"],
        ["--images-per-request", "2", "--op", "sepia"],
        ["--window", "5", "--limit", "1"],
        ["--op", "sepai"],
    ],
)
def test_wrong_usage_is_told_before_anything_is_sent(words: list[str], server: Running) -> None:
    assert run(["bench", f"http://127.0.0.1:{server.port}", *words]) == ExitCode.WRONG_USAGE
