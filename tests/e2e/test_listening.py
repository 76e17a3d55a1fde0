"""The log line that says where a server listens: once, and when it accepts connections."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.exit_codes import ExitCode
from tests.ports import free_port
from tests.server import PATIENCE


@pytest.mark.parametrize("front_ends", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_the_address_is_logged_once_when_connections_are_accepted(front_ends: str) -> None:
    flags = ["--port", "0", "--gpus", "0", "--weights", "random"]
    command = [sys.executable, "-m", "app.cli", "serve", *flags, "--front-ends", front_ends]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
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


@pytest.mark.slow
def test_several_processes_accept_no_connection_before_all_of_them_can_work(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    flags = ["--port", str(port), "--gpus", "0", "--weights", "random", "--front-ends", "2"]
    command = [sys.executable, "-m", "app.cli", "serve", *flags, "--log-level", "info"]
    with log.open("wb") as errors, subprocess.Popen(command, stderr=errors) as server:
        try:
            end = time.monotonic() + PATIENCE
            while (connection := _connected(port)) is None:
                assert server.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)
            assert log.read_text().count("can work as") == 3
            with connection:
                connection.settimeout(PATIENCE)
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert connection.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
        finally:
            server.send_signal(signal.SIGINT)


def _connected(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), PATIENCE)
    except ConnectionRefusedError:
        return None
