"""The real process: starting, draining, exit codes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from models.exit_codes import ExitCode
from models.networks.resnet18 import BUNDLED
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
    arguments: list[str], variables: dict[str, str], text: str, tmp_path: Path
) -> None:
    environment = os.environ | variables
    (tmp_path / "x.jpg").write_bytes(jpeg())
    arguments = [str(tmp_path / each) if each == "x.jpg" else each for each in arguments]
    command = [sys.executable, "-m", "app.cli", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["classify", "x.jpg"]])
def test_weights_that_do_not_fit_their_labels_are_wrong_usage(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "labels.txt").write_text("the only one")
    flags = [
        "--weights",
        str(BUNDLED.path),
        "--weights-labels",
        str(tmp_path / "labels.txt"),
    ]
    (tmp_path / "x.jpg").write_bytes(jpeg())
    command = [str(tmp_path / each) if each == "x.jpg" else each for each in command]
    words = [sys.executable, "-m", "app.cli", *command, *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2, done.stderr
    assert "10 classes, but there are 1 labels" in done.stderr


def test_a_reader_that_wants_no_more_ends_a_command_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app.cli", "filters"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_taken_port_is_an_error_with_a_plain_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "app.cli", "serve", "--weights", "random", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == ExitCode.CANNOT_LISTEN
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_files_on_the_command_line_get_the_records_of_the_service(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "a.jpg").write_bytes(jpeg())
    (folder / "b.jpg").write_bytes(b"broken")
    command = [sys.executable, "-m", "app.cli"]
    files = [str(folder / "a.jpg"), str(folder / "b.jpg")]
    flags = ["--weights", "random", "--precision", "fp32", "--top-k", "2"]
    words = [*command, "classify", *files, *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    good, bad = done.stdout.splitlines()
    assert '"status":"ok"' in good
    assert '"code":"unsupported_media"' in bad
    ops = '[{"name": "invert"}]'
    filtered = subprocess.run(
        [*command, "filter", files[0], "--ops", ops, "-o", str(folder / "c.png")],
        capture_output=True,
        timeout=PATIENCE,
    )
    assert filtered.returncode == 0, filtered.stderr
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")
    for output in (files[0], tmp_path, folder / "none" / "c.png"):
        done = subprocess.run(
            [*command, "filter", files[0], "--ops", ops, "-o", str(output)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 2
        assert "--output" in done.stderr
    assert (folder / "a.jpg").read_bytes() == jpeg(), "a source was overwritten"
