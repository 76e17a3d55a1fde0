"""The command line as its users meet it: Ctrl-C, full disks, places that are taken."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from models.exit_codes import ExitCode
from tests.server import PATIENCE

FULL = "No space left on device; free some space there, or choose another place\n"
INVERT = '[{"name": "invert"}]'


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "app.cli", *map(str, words)]


@contextmanager
def reading(pipe: Path, *words: object) -> Iterator[tuple["subprocess.Popen[bytes]", BinaryIO]]:
    """Return the command when it has opened the pipe as one of its sources, and the end to write
    to.
    """
    os.mkfifo(pipe)
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        try:
            with pipe.open("wb") as end:
                yield run, end
        finally:
            run.kill()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.TERMINATED)],
)
def test_ctrl_c_while_a_source_is_read_leaves_no_file_and_no_traceback(
    tmp_path: Path, number: signal.Signals, code: ExitCode
) -> None:
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    words = ("filter", pipe, "--ops", INVERT, "-o", f"{out}/", "--gpus", "0")
    with reading(pipe, *words) as (run, _):
        run.send_signal(number)
        _, said = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (code, b"")
    assert not out.exists()


def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    waiting = f"import time\nopen({str(pipe)!r})\nwhile True:\n    time.sleep(0.01)\n"
    (tmp_path / "argparse.py").write_text(waiting)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with reading(pipe, "filters") as (run, _):
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=PATIENCE)
    assert (run.returncode, said) == (ExitCode.INTERRUPTED, b"")


def test_standard_output_on_a_full_disk_is_named() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("filters"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
        )
    assert done.returncode == ExitCode.CANNOT_WRITE
    assert done.stderr == "darkroom: standard output: " + FULL
