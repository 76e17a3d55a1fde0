"""The real process: starting, listening, reloading, draining, exit codes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from models.exit_codes import ExitCode
from tests.pictures import jpeg
from tests.server import COLD, FILTERS, PATIENCE, post, serving, until


@pytest.mark.parametrize("front_ends", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_the_address_is_logged_once_when_connections_are_accepted(front_ends: str) -> None:
    command = [*COLD, "serve", "--port", "0", "--gpus", "0", "--front-ends", front_ends]
    cold = os.environ | FILTERS
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=cold) as server:
        assert server.stderr is not None
        try:
            messages = []
            for line in server.stderr:
                messages.append(json.loads(line)["message"])
                if messages[-1].startswith("listening on"):
                    break
            found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)", messages[-1])
            assert found, messages
            with socket.create_connection(("127.0.0.1", int(found[1])), PATIENCE) as connection:
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert connection.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
        finally:
            server.send_signal(signal.SIGINT)
        rest = [json.loads(line)["message"] for line in server.stderr]
    assert server.returncode == ExitCode.INTERRUPTED
    assert not [each for each in rest if each.startswith("listening on")]


def test_sighup_changes_limits_in_place_and_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "darkroom.env"
    file.write_text("DARKROOM_MAX_BODY_BYTES=1000000\n")
    flags = ("--log-level", "error", "--settings-file", str(file))
    with serving(*flags, program=COLD, environment=FILTERS) as server:
        url = f"http://127.0.0.1:{server.port}/filter?name=invert"

        def status() -> int:
            kind = {"Content-Type": "image/jpeg"}
            return post(url, content=jpeg(), headers=kind).status_code

        assert status() == 200
        file.write_text("DARKROOM_MAX_BODY_BYTES=10\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status() == 413)
        file.write_text("DARKROOM_MAX_BODY_BYTES=nonsense\n")
        server.process.send_signal(signal.SIGHUP)
        server.process.send_signal(signal.SIGUSR2)
        assert {status() for _ in range(20)} == {413}
        file.write_text("DARKROOM_MAX_BODY_BYTES=1000000\n")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: status() == 200)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, ExitCode.OK), (signal.SIGINT, ExitCode.INTERRUPTED)]
)
def test_a_signal_ends_a_server_that_is_still_starting_at_once(
    number: signal.Signals, code: ExitCode
) -> None:
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--weights", "random"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"Started server process" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        left = process.stderr.read()
        assert process.wait(PATIENCE) == code
    assert b"Traceback" not in left


def test_a_reader_that_wants_no_more_ends_a_command_without_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "app.cli", "filters"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=PATIENCE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
