"""`darkroom classify` with folders: the command and its server end together, and go on later."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from models.exit_codes import ExitCode
from tests.chaos.harness.processes import tree
from tests.e2e.conftest import Running
from tests.pictures import drawing, encoded, jpeg
from tests.server import PATIENCE, gone, ran, until

CPU = ["--gpus", "0"]
SMALL = [*CPU, "--weights", "random", "--precision", "fp32", "--max-batch-size", "1"]

AHEAD = 4
"""Images of a chunk, in place of 16: so few images are enough for a test."""

RUN = f"""
import sys
from app.bulk import engine
from app.cli.script import main

engine.IMAGES = {AHEAD}
sys.exit(main())
"""
"""A program that runs the command with shorter chunks."""


def test_a_command_that_was_killed_goes_on_and_tells_warnings_and_the_first_failures(
    tmp_path: Path,
) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    (folder / "more").mkdir(parents=True)
    for number in range(AHEAD + 4):
        (folder / f"{number:03}.jpg").write_bytes(jpeg())
    for number in range(4):
        (folder / "more" / f"broken{number}.png").write_text("no image")
    pipe = folder / "more" / "last.jpg"
    os.mkfifo(pipe)  # the command waits there until somebody writes

    def partial() -> bytes:
        return b"".join(each.read_bytes() for each in tmp_path.glob("*.partial"))

    words = [sys.executable, "-c", RUN, "classify", str(folder), "--out", str(out), *SMALL]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as first:
        until(lambda: partial().count(b"\n") >= 4)
        first.kill()
    kept = partial()
    assert not out.exists()
    pipe.unlink()
    pipe.write_bytes(jpeg())
    image = {"DARKROOM_HOST": "0.0.0.0"}  # as in an image of the server
    second = ran(*words, environment=image, code=ExitCode.FAILED)
    whole = out.read_bytes()
    assert whole.startswith(kept)
    records = [json.loads(line) for line in whole.splitlines()]
    assert [each["index"] for each in records] == [*range(AHEAD + 9)]
    assert [Path(each["source"]).name for each in records[-2:]] == ["broken3.png", "last.jpg"]
    assert [each["status"] for each in records[-2:]] == ["error", "ok"]
    assert records[-1]["warning"] == "random weights: the labels mean nothing"
    assert "everybody who can reach" not in second.stderr
    warning, summary, *failures = second.stderr.splitlines()[-7:]
    assert warning == "darkroom: warning: random weights: the labels mean nothing"
    count = kept.count(b"\n")
    assert summary.startswith(f"{AHEAD + 9} images, {count} of them by an earlier run, 4 failed")
    assert failures[0] == f"darkroom: 4 failed; their reasons are in {out}"
    assert failures[1].startswith(f"  {folder}/more/broken0.png: the bytes are not an image")
    assert (len(failures), failures[-1]) == (5, "  …")
    # What the records were made with stays beside those of failures, for `--retry-failed`.
    kept_beside = {"photos", "labels.jsonl", "labels.jsonl.origin.json"}
    assert {each.name for each in tmp_path.iterdir()} == kept_beside
    undisturbed = tmp_path / "undisturbed.jsonl"
    words[words.index(str(out))] = str(undisturbed)
    ran(*words, environment=image, code=ExitCode.FAILED)
    assert undisturbed.read_bytes() == whole


def test_the_end_of_the_server_and_ctrl_c_end_the_command_and_all_processes(tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "out"
    folder.mkdir()
    os.mkfifo(folder / "pipe.jpg")
    for number in range(AHEAD):  # of the request before that with the pipe
        (folder / f"{number:02}.jpg").write_bytes(jpeg())
    words = [sys.executable, "-c", RUN, "filter", str(folder), "--op", "invert", "-o", str(out)]
    words += CPU

    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as command:
        until(lambda: any(out.glob("*.jpg")))
        started = tree(command.pid)[1:]
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE) == ExitCode.INTERRUPTED
    until(lambda: all(map(gone, started)))
    shutil.rmtree(out)
    with subprocess.Popen(words, stderr=subprocess.PIPE) as command:
        until(lambda: any(out.glob("*.jpg")))
        started = tree(command.pid)[1:]
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started}
        (server,) = (pid for pid, line in lines.items() if b"server of a command" in line)
        os.kill(server, signal.SIGKILL)
        (folder / "pipe.jpg").write_bytes(jpeg())
        assert command.wait(PATIENCE) == ExitCode.FAILED
        assert command.stderr
        assert b"has ended with exit code -9; the same command goes on" in command.stderr.read()
    until(lambda: all(map(gone, started)))


def test_settings_that_can_never_work_are_wrong_usage_and_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    (tmp_path / "labels.json").write_text('["cat", "dog"]')
    words = [sys.executable, "-m", "app.cli", "classify", str(tmp_path / "a.jpg"), *SMALL]
    words += ["--weights-labels", str(tmp_path / "labels.json")]
    words += ["--out", str(tmp_path / "out.jsonl")]
    assert ran(*words, code=ExitCode.WRONG_USAGE).stderr.startswith("darkroom: ")
    assert {each.name for each in tmp_path.iterdir()} == {"a.jpg", "labels.json"}


def test_duplicates_finds_a_smaller_copy_beside_a_broken_file(
    tmp_path: Path, server: Running
) -> None:
    photo = drawing(400, 300, 1)
    files = {
        "a.jpg": encoded(photo, quality=95),
        "b.jpg": jpeg(2),
        "c.webp": encoded(photo.resize((200, 150)), "WEBP", quality=50),
        "d.png": b"no image",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    words = [sys.executable, "-m", "app.cli", "duplicates", str(tmp_path)]
    words += ["--server", f"http://127.0.0.1:{server.port}"]
    done = ran(*words, code=ExitCode.FAILED)
    sources = [each["source"] for each in json.loads(done.stdout)["images"]]
    assert sources == [str(tmp_path / name) for name in ("a.jpg", "c.webp")]
    assert done.stderr.startswith(str(tmp_path / "d.png"))
