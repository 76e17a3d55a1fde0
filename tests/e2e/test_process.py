"""The real process: starting, draining, exit codes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from app.cli.script import main
from models.exit_codes import ExitCode
from tests.pictures import jpeg
from tests.server import PATIENCE, serving, until


def test_sigterm_drains_and_exits_with_0() -> None:
    with serving("--weights", "random", "--grace", "9999", "--log-level", "error") as server:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            kind = {"Content-Type": "image/jpeg"}
            assert client.post("/classify", content=jpeg(), headers=kind).status_code == 200
            server.process.send_signal(signal.SIGTERM)
            until(lambda: client.get("/readyz").status_code == 503)
            assert client.post("/classify", content=jpeg(), headers=kind).status_code == 200
        server.process.send_signal(signal.SIGTERM)  # a second one ends the grace time
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, ExitCode.OK), (signal.SIGINT, ExitCode.INTERRUPTED)],
)
def test_a_signal_ends_a_server_that_is_still_starting_at_once(
    number: signal.Signals, code: ExitCode
) -> None:
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--weights", "random"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"Waiting for application startup" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        left = process.stderr.read()
        assert process.wait(PATIENCE) == code
    assert b"Traceback" not in left


@pytest.mark.slow
def test_ctrl_c_ends_a_running_server_with_130() -> None:
    flags = ("--weights", "random", "--precision", "fp32", "--grace", "9999")
    with serving(*flags, "--log-level", "error") as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == ExitCode.INTERRUPTED


@pytest.mark.slow
def test_a_second_ctrl_c_ends_a_server_without_a_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    flags = ("--weights", "random", "--gpus", "0", "--grace", "0", "--log-level", "info")
    log = ""

    def stops() -> bool:
        nonlocal log
        log += "".join(capfd.readouterr())
        return "Shutting down" in log

    with serving(*flags) as server:
        server.process.send_signal(signal.SIGINT)
        until(stops)  # uvicorn waits 0.1 s then
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == ExitCode.INTERRUPTED
    log += "".join(capfd.readouterr())
    assert "Traceback" not in log
    assert "Application shutdown complete" in log


@pytest.mark.parametrize(
    ("arguments", "variables", "text"),
    [
        (["serve", "--prot", "1"], {}, "--prot"),
        (["serve", "--port", "many"], {}, "--port"),
        (["serve"], {"DARKROOM_PROT": "1"}, "DARKROOM_PROT"),
        (["serve"], {"DARKROOM_PORT": "-1"}, "DARKROOM_PORT"),
        (["serve", "--weights", "imagnet"], {}, "imagnet"),
        (["classify", "x.jpg", "--top-k", "0", "--weights", "random"], {}, "--top-k"),
        (["filter", "x.jpg", "--ops", "[", "-o", "-"], {}, "--ops"),
        (["filter", "x.jpg", "--ops", '[{"name": "nope"}]', "-o", "-"], {}, "nope"),
        (["filter", "x.jpg", "--ops", '[{"name": "invert"}]', "-o", "x.gif"], {}, ".gif"),
        (["classify", "x.jpg", "--gpus", "99"], {}, "--gpus 99"),
        (["filters", "nope"], {}, "nope"),
        (["weights", "fetch", "nope"], {}, "nope"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what(
    arguments: list[str],
    variables: dict[str, str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "x.jpg").write_bytes(jpeg())
    monkeypatch.chdir(tmp_path)
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == ExitCode.WRONG_USAGE
    assert text in capsys.readouterr().err


def test_a_reader_that_wants_no_more_ends_a_command_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app.cli", "filters"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
