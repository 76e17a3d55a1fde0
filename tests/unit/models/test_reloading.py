"""Settings files, and what of them a running server takes over."""

from pathlib import Path

import pytest

from models.settings import Settings
from models.settings_loading import FIXED, IN_PLACE, load_settings, reloaded


def written(folder: Path, *lines: str) -> Path:
    file = folder / "darkroom.env"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_flags_and_the_environment_win_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("# limits", "DARKROOM_MAX_BATCH_SIZE=4", "DARKROOM_GRACE=1", "DARKROOM_THREADS=3")
    file = written(tmp_path, *lines)
    monkeypatch.setenv("DARKROOM_GRACE", "2")
    found = load_settings(settings_file=str(file), threads="1")
    assert (found.max_batch_size, found.grace, found.threads) == (4, 2.0, 1)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("DARKROOM_MAX_BATCH=4", "line 2: 'DARKROOM_MAX_BATCH' is no setting"),
        ("PATH=/bin", "line 2: 'PATH' is no setting"),
        ("DARKROOM_GRACE", "line 2: 'DARKROOM_GRACE' is no setting"),
        ("DARKROOM_GRACE=-1", "DARKROOM_GRACE: Input should be greater"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        load_settings(settings_file=str(written(tmp_path, "", line)))


def test_a_file_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        load_settings(settings_file=str(tmp_path / "none.env"))


def test_what_changed_is_taken_and_what_needs_a_restart_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "DARKROOM_MAX_IMAGES_IN_FLIGHT=7")
    running = load_settings(settings_file=str(file), max_batch_size="4")
    written(tmp_path, "DARKROOM_MAX_IMAGES_IN_FLIGHT=9", "DARKROOM_THREADS=3")
    found, later = reloaded(running, IN_PLACE)
    assert (found.max_images_in_flight, found.max_batch_size) == (9, 4)
    assert (found.threads, later) == (running.threads, ["threads"])


def test_every_name_is_a_setting_and_none_is_both_fixed_and_changeable() -> None:
    assert set(Settings.model_fields) >= FIXED | IN_PLACE
    assert not FIXED & IN_PLACE
