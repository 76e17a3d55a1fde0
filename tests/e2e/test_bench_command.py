"""`darkroom bench` against a real server."""

import json
from typing import Any

import pytest

from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.e2e.conftest import Running
from tests.ports import free_port
from tests.server import PATIENCE

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
    found, table = benchmarked([f"http://127.0.0.1:{server.port}", *words], capsys)
    assert (found["path"], found["drawn"]) == (path, True)
    errors = {kind for step in found["steps"] for kind in step["errors"]}
    assert all(kind.startswith("503 ") for kind in errors)  # the server may be busy
    assert all(step["images"] > 0 for step in found["steps"])
    assert all(step["client_cores"] > 0 for step in found["steps"])
    assert len(table) == 1 + len(found["steps"])


def benchmarked(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON and the lines of the table of steps that are long enough for an answer."""
    limit = 0.5
    while run(["bench", *words, "--warm-up", "0", "--window", "0.25", "--limit", str(limit)]):
        capsys.readouterr()
        limit *= 2
        assert limit < PATIENCE
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err.splitlines()


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
