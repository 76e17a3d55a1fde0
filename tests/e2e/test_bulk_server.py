"""`darkroom classify` and `filter` with `--server`: the records and files of the own engine."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from models.exit_codes import ExitCode
from tests.pictures import jpeg, png
from tests.server import PATIENCE, serving

OWN = ["--gpus", "0", "--weights", "random", "--precision", "fp32"]


def run(*words: str) -> int:
    """Run a command; return its exit code."""
    command = [sys.executable, "-m", "app.cli", *words]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode


def rounded(path: Path) -> list[dict[str, Any]]:
    """Return records without the digits of scores that the company in a batch changes."""
    records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    for each in (each for record in records for each in record.get("predictions", ())):
        each["score"] = round(each["score"], 4)
    return records


@pytest.mark.slow
def test_a_server_gives_the_records_and_files_of_the_own_engine(tmp_path: Path) -> None:
    photos, out, own = tmp_path / "photos.zip", tmp_path / "remote.jsonl", tmp_path / "own.jsonl"
    with zipfile.ZipFile(photos, "w") as archive:
        for number in range(20):
            archive.writestr(f"in/{number:02}.jpg", jpeg(number % 4))
        archive.writestr("in/bad.png", "no image")
        archive.writestr("z.png", png())
    classifying = ("classify", str(photos), "--top-k", "2", *OWN, "--out")
    chain = ("--op", "gaussian_blur:sigma=2", "--format", "png", "--gpus", "0")
    filtering = ("filter", str(photos), *chain, "--out")
    with serving(*OWN, "--log-level", "warning") as server:
        url = ("--server", f"http://127.0.0.1:{server.port}")
        assert run(*classifying, str(out), *url) == ExitCode.FAILED
        assert run(*filtering, str(tmp_path / "remote"), *url) == ExitCode.FAILED
    assert run(*classifying, str(own)) == ExitCode.FAILED
    assert rounded(out) == rounded(own)
    assert run(*filtering, str(tmp_path / "own")) == ExitCode.FAILED
    files = [each.relative_to(tmp_path / "own") for each in (tmp_path / "own").rglob("*.png")]
    assert len(files) == 21
    for each in files:
        assert (tmp_path / "remote" / each).read_bytes() == (tmp_path / "own" / each).read_bytes()
    failed = [json.loads((tmp_path / f"{n}.failed.jsonl").read_text()) for n in ("remote", "own")]
    assert [Path(each.pop("file")).name for each in failed] == ["bad.png"] * 2
    assert failed[0] == failed[1]
