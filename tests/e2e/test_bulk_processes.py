"""A command and the server that it starts: both end together, however one of them ends."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.bulk.engine import Engine
from app.bulk.run import tasks_of
from app.bulk.walk import Source
from app.bulk.work import Classification
from app.processes.private_server import PrivateServer
from models.exit_codes import ExitCode
from models.settings import Precision, Settings
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


@pytest.mark.slow
def test_front_ends_that_die_are_replaced_and_a_killed_command_goes_on(tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    folder.mkdir()
    for number in range(120):
        (folder / f"{number:03}.jpg").write_bytes(jpeg(number % 3, 64, 48))
    (folder / "030.jpg").write_text("no image")
    words = [sys.executable, "-m", "app.cli", "classify", str(folder), "--out", str(out), *OWN]
    words += ["--front-ends", "2"]
    pipe = folder / "110.jpg"
    pipe.unlink()
    os.mkfifo(pipe)  # the command waits there, so it cannot end too early

    def recorded() -> bytes:
        return b"".join(each.read_bytes() for each in tmp_path.glob("*.partial"))

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as first:
        until(lambda: recorded().count(b"\n") >= 16)
        started = children_of(first.pid)
        front_ends = [pid for pid, line in started.items() if "front end" in line]
        assert len(front_ends) == 2
        os.kill(front_ends[0], signal.SIGKILL)
        until(lambda: recorded().count(b"\n") >= 80)
        started |= children_of(first.pid)
        first.kill()
    until(lambda: not any(map(is_running, started)))
    kept = recorded()
    assert not out.exists()
    pipe.unlink()
    pipe.write_bytes(jpeg())
    done = subprocess.run(words, capture_output=True, timeout=PATIENCE)
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert out.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    records = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [each["index"] for each in records] == [*range(120)]
    assert [each["index"] for each in records if each["status"] == "error"] == [30]


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


@pytest.mark.slow
@pytest.mark.parametrize("front_ends", ["0", "2"])
def test_the_server_of_a_command_ends_by_itself_when_it_is_told(front_ends: str) -> None:
    settings = Settings(gpus="0", weights="random", precision=Precision.FP32, front_ends=front_ends)
    server = PrivateServer(settings, 1, weights=True, full_batches=True)
    engine = Engine(Classification({}), [], server, 1 << 20)
    tasks = tasks_of(iter([Source("a.jpg", "a.jpg", lambda _limit: jpeg())]))
    with contextlib.closing(engine), contextlib.closing(engine.answers(tasks)) as answers:
        assert [each for chunk in answers for each in chunk]
    assert server._process.returncode == ExitCode.OK
