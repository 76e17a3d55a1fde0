"""The file that `darkroom tune` writes."""

from pathlib import Path

import pytest

from app.cli import offline
from app.cli.commands.tune import env_file
from app.cli.load.search import Choice, Question
from app.cli.parser import run
from models.exit_codes import ExitCode
from models.settings_loading import load_settings

FRONT_ENDS = Choice(Question("front_ends", "front ends", ["0", "2"]), "2", {"0": 9.0, "2": 12.0})
BATCH = Choice(Question("max_batch_size", "images in a batch", ["8", "4"]), "8", {"8": 12.0})


def test_the_file_explains_each_choice_and_is_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "darkroom.env"
    file.write_text(env_file([FRONT_ENDS, BATCH], ["measured on two cores"]))
    assert file.read_text().splitlines() == [
        "# measured on two cores",
        "",
        "# front ends: 2 (9.0 images/s with 0, 12.0 images/s with 2; "
        "clearly faster than the default, twice)",
        "DARKROOM_FRONT_ENDS=2",
        "",
        "# images in a batch: the default, 8, because there was no time to compare others",
        "# DARKROOM_MAX_BATCH_SIZE=8",
    ]
    assert load_settings(settings_file=file).front_ends == "2"


def test_an_existing_file_is_not_replaced_and_nothing_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "darkroom.env"
    file.write_text("mine")
    assert run(["tune", "--write", str(file)]) == ExitCode.WRONG_USAGE
    assert "add --force to replace it" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_refused_and_nothing_is_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "drawings", lambda: pytest.fail("the measurement has begun"))
    file = tmp_path / "missing" / "darkroom.env"
    assert run(["tune", "--write", str(file)]) == ExitCode.CANNOT_WRITE
    assert "No such file or directory; make the folder first" in capfd.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "9", "3601", "nan"])
def test_the_time_is_bounded(seconds: str) -> None:
    assert run(["tune", "--seconds", seconds]) == ExitCode.WRONG_USAGE
