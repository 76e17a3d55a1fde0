"""A command and the server that it starts: both end together, however one of them ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from models.exit_codes import ExitCode
from tests.pictures import jpeg
from tests.server import PATIENCE, until

SERVER = "server of a command"
OWN = ["--gpus", "0", "--weights", "random", "--precision", "fp32"]


def children_of(process: int) -> dict[int, str]:
    """Return the processes that a process started, with their command lines."""
    found = {}
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            found[child] = words.replace(b"\0", b" ").decode(errors="replace")
            found |= children_of(child)
    return found


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_end_of_the_server_and_ctrl_c_end_the_command_and_all_processes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "a.jpg").write_bytes(jpeg())
    words = [sys.executable, "-m", "app.cli", "classify", str(tmp_path), *OWN]
    words += ["--out", str(tmp_path / "out.jsonl")]

    def server_of(command: "subprocess.Popen[bytes]") -> int | None:
        return next((pid for pid, line in children_of(command.pid).items() if SERVER in line), None)

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as command:
        until(lambda: any(each.stat().st_size for each in tmp_path.glob("*.partial")))
        started = children_of(command.pid)
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == ExitCode.INTERRUPTED
    until(lambda: not any(map(is_running, started)))
    for each in tmp_path.glob("*.partial"):
        each.unlink()
    with subprocess.Popen(words, stderr=subprocess.PIPE) as command:
        until(lambda: any(each.stat().st_size for each in tmp_path.glob("*.partial")))
        server = server_of(command)
        assert server is not None
        started = children_of(command.pid)
        os.kill(server, signal.SIGKILL)
        (tmp_path / "pipe.jpg").write_bytes(jpeg())
        assert command.wait(PATIENCE) == ExitCode.FAILED
        assert command.stderr
        assert b"has ended with exit code -9; the same command goes on" in command.stderr.read()
    until(lambda: not any(map(is_running, started)))


def test_settings_that_can_never_work_are_wrong_usage_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    (tmp_path / "labels.json").write_text('["cat", "dog"]')
    words = [sys.executable, "-m", "app.cli", "classify", str(tmp_path / "a.jpg"), *OWN]
    words += ["--weights-labels", str(tmp_path / "labels.json")]
    words += ["--out", str(tmp_path / "out.jsonl")]
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE)
    assert done.returncode == ExitCode.WRONG_USAGE, done.stderr
    assert done.stderr.startswith(b"darkroom: ")
    assert {each.name for each in tmp_path.iterdir()} == {"a.jpg", "labels.json"}
