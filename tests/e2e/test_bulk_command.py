"""`darkroom classify FOLDER --out FILE`, also when it is killed on the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from app.cli.commands.local_service import AHEAD
from models.exit_codes import ExitCode
from tests.pictures import jpeg
from tests.server import PATIENCE, until

SMALL = ["--gpus", "0", "--weights", "random", "--precision", "fp32"]


def command(folder: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "app.cli", "classify", str(folder), "--out", str(out), *SMALL]


def test_a_command_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    folder, out = tmp_path / "photos", tmp_path / "labels.jsonl"
    (folder / "more").mkdir(parents=True)
    for number in range(AHEAD + 4):
        (folder / f"{number:03}.jpg").write_bytes(jpeg())
    (folder / "more" / "broken.png").write_text("no image")
    pipe = folder / "more" / "last.jpg"
    os.mkfifo(pipe)  # the command waits there until somebody writes

    def partial() -> bytes:
        return b"".join(each.read_bytes() for each in tmp_path.glob("*.partial"))

    with subprocess.Popen(command(folder, out)) as run:
        until(lambda: partial().count(b"\n") >= 4)
        run.send_signal(signal.SIGKILL)
    kept = partial()
    assert not out.exists()
    pipe.unlink()
    pipe.write_bytes(jpeg())
    done = subprocess.run(command(folder, out), capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (ExitCode.FAILED, b"")
    whole = out.read_bytes()
    assert whole.startswith(kept)
    records = [json.loads(line) for line in whole.splitlines()]
    assert [each["index"] for each in records] == [*range(AHEAD + 6)]
    assert [Path(each["source"]).name for each in records[-2:]] == ["broken.png", "last.jpg"]
    assert [each["status"] for each in records[-2:]] == ["error", "ok"]
    count = kept.count(b"\n")
    assert (
        f"{AHEAD + 6} images, {count} of them by an earlier run, 1 failed" in done.stderr.decode()
    )
    assert not [*tmp_path.glob("*.partial")]


def test_the_results_of_a_folder_are_in_a_folder_even_of_one_image(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(jpeg())
    words = ["filter", f"{tmp_path}/photos", "--op", "invert", "-o", f"{tmp_path}/made"]
    filtering = [sys.executable, "-m", "app.cli", *words, "--gpus", "0"]
    done = subprocess.run(filtering, capture_output=True, timeout=PATIENCE)
    assert done.returncode == ExitCode.OK, done.stderr
    assert [each.name for each in (tmp_path / "made").iterdir()] == ["a.jpg"]
