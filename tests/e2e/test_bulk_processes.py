"""`darkroom classify --processes 2`: readers and a worker in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from models.exit_codes import ExitCode
from tests.pictures import jpeg
from tests.server import PATIENCE, until

READER = "app.bulk.engines.child"


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
    return found


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_readers_that_die_are_replaced_and_a_killed_command_goes_on(tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    folder.mkdir()
    for number in range(300):
        (folder / f"{number:03}.jpg").write_bytes(jpeg(number % 3, 64, 48))
    (folder / "100.jpg").write_text("no image")
    words = [sys.executable, "-m", "app.cli", "classify", str(folder), "--out", str(out)]
    words += ["--processes", "2", "--gpus", "0", "--weights", "random", "--precision", "fp32"]
    pipe = folder / "250.jpg"
    pipe.unlink()
    os.mkfifo(pipe)  # a reader waits there, so the command cannot end too early

    def recorded() -> bytes:
        return b"".join(each.read_bytes() for each in tmp_path.glob("*.partial"))

    def readers(command: "subprocess.Popen[bytes]") -> list[int]:
        return [pid for pid, words in children_of(command.pid).items() if READER in words]

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as first:
        until(lambda: recorded().count(b"\n") >= 64)
        started = [*children_of(first.pid)]
        os.kill(readers(first)[0], signal.SIGKILL)
        until(lambda: recorded().count(b"\n") >= 192)
        started += [*children_of(first.pid)]
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
    assert [each["index"] for each in records] == [*range(300)]
    assert [each["index"] for each in records if each["status"] == "error"] == [100]


def test_readers_that_a_signal_has_stopped_are_replaced(tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    folder.mkdir()
    pipe = folder / "a.jpg"
    os.mkfifo(pipe)  # a reader waits there, so the command cannot end too early
    words = [sys.executable, "-m", "app.cli", "classify", str(folder), "--out", str(out)]
    words += ["--processes", "2", "--gpus", "0", "--weights", "random", "--precision", "fp32"]

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as command:
        writer = os.open(pipe, os.O_WRONLY)  # it returns when a reader has opened it
        readers = [pid for pid, words in children_of(command.pid).items() if READER in words]
        for each in readers:
            os.kill(each, signal.SIGSTOP)
        until(lambda: not any(map(is_running, readers)))
        pipe.write_bytes(jpeg())
        os.close(writer)
        assert command.wait(PATIENCE) == ExitCode.OK
    assert len(out.read_bytes().splitlines()) == 1


def test_wrong_settings_and_ctrl_c_end_the_command_and_its_processes(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "app.cli", "classify", "--processes", "2", "--gpus", "0"]
    (tmp_path / "a.jpg").write_bytes(jpeg())
    none = [*words, str(tmp_path / "a.jpg"), "--processes", "0"]
    done = subprocess.run(none, capture_output=True, timeout=PATIENCE)
    assert done.returncode == ExitCode.WRONG_USAGE
    assert b"--processes: auto or 1 to" in done.stderr
    os.mkfifo(tmp_path / "pipe.jpg")
    waiting = [*words, str(tmp_path), "--out", str(tmp_path / "out.jsonl"), "--weights", "random"]
    with subprocess.Popen(waiting, stderr=subprocess.DEVNULL) as command:
        until(lambda: len(children_of(command.pid)) == 3)
        started = [*children_of(command.pid)]
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == ExitCode.INTERRUPTED
    until(lambda: not any(map(is_running, started)))
