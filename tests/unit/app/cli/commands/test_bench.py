"""The table and the report of `darkroom bench`, with measurements that the test makes up."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from app.cli.commands import bench, health
from app.cli.load.step import Load
from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.pictures import jpeg

URL = "http://127.0.0.1:9"

STEP: dict[str, Any] = {
    "loop": "closed",
    "connections": 1,
    "images_per_second": 5.0,
    "stable": True,
    "images": 10,
    "errors": {},
    "milliseconds": dict.fromkeys(["p50", "p90", "p99", "p999", "max"], 1.0),
    "client_cores": 0.1,
    "client_limited": False,
}


@pytest.fixture
def photo(tmp_path: Path) -> str:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg())
    return str(path)


@pytest.fixture
def interrupted_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Interrupt the step with the number of connections that a test puts into this list."""
    connections: list[int] = []

    async def measured(_origin: Any, _messages: Any, _each: int, load: Load, _timing: Any) -> Any:
        if load.connections in connections:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        return STEP

    def ask(*_: object) -> dict[str, Any]:
        return {"state": "ok", "ready": True}

    monkeypatch.setattr(bench, "measured", measured)
    monkeypatch.setattr(health, "ask", ask)
    return connections


def test_ctrl_c_prints_the_steps_that_were_finished(
    interrupted_at: list[int], photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted_at.append(8)
    code = run(["bench", URL, "--photos", photo, "--connections", "1,8,64"])
    found = json.loads(capsys.readouterr().out)
    assert (found["interrupted"], found["steps"]) == (True, [STEP])
    assert code == ExitCode.INTERRUPTED


def test_ctrl_c_in_the_first_step_prints_no_report(
    interrupted_at: list[int], photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted_at.append(1)
    with pytest.raises(KeyboardInterrupt):
        run(["bench", URL, "--photos", photo, "--connections", "1,8"])
    assert capsys.readouterr().out == ""


def test_a_report_of_all_steps_is_not_interrupted(
    interrupted_at: list[int], photo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not interrupted_at
    assert run(["bench", URL, "--photos", photo, "--connections", "1,8"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["interrupted"], len(found["steps"])) == (False, 2)


def test_a_server_s_names_of_errors_cannot_steer_the_terminal() -> None:
    row = bench._row({**STEP, "errors": {"\x1b[2J\x9b\n": 3}}, colours=False)
    assert row.isprintable()
    assert "\\x1b[2J\\x9b\\x0a: 3" in row
