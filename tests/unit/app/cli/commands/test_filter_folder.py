"""`darkroom filter` with a folder: what it may replace."""

from pathlib import Path

import pytest

from app.bulk.outputs.folder import ResultsFolder
from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.pictures import jpeg


def test_a_command_that_was_stopped_while_it_checked_replaces_nothing_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("photos", "made"):
        (tmp_path / name).mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(jpeg())
    (tmp_path / "made/a.jpg").write_text("mine")
    words = ["filter", f"{tmp_path}/photos", "--op", "invert", "--out", f"{tmp_path}/made"]
    words += ["--gpus", "0"]

    def stopped(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ResultsFolder, "check_targets", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(words)
    assert run(words) == ExitCode.WRONG_USAGE
    assert "exists already" in capfd.readouterr().err
    assert (tmp_path / "made/a.jpg").read_text() == "mine"
