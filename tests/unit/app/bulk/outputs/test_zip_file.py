"""A ZIP of results and the folder that they are collected in, after commands that were stopped."""

from pathlib import Path

import pytest

from app.bulk.errors import WrongUsage
from app.bulk.outputs import records, zip_file


def test_what_a_command_left_at_its_last_step_is_removed(tmp_path: Path) -> None:
    archive = tmp_path / "made.zip"
    zip_file.collected(archive).mkdir()
    (zip_file.collected(archive) / "a.jpg").write_bytes(b"a")
    zip_file.pack(archive, replaces=False)
    content = archive.read_bytes()  # killed here: its journal is gone, and the folder is not
    with pytest.raises(WrongUsage, match="--force"):
        zip_file.check(archive, [], replaces=False)
    zip_file.check(archive, [], replaces=True)
    assert [each.name for each in tmp_path.iterdir()] == ["made.zip"]
    assert archive.read_bytes() == content


@pytest.mark.parametrize(
    ("goes_on", "told"), [(True, "has not ended; start that one again"), (False, "no command")]
)
def test_a_folder_in_the_place_of_collected_results_is_told_and_kept(
    tmp_path: Path, goes_on: bool, told: str
) -> None:
    archive = tmp_path / "made.zip"
    zip_file.collected(archive).mkdir()
    if goes_on:
        (tmp_path / f"{records.beside(archive).name}.0123abcd.partial").touch()
    with pytest.raises(WrongUsage, match=told):
        zip_file.check(archive, [], replaces=True)
    assert zip_file.collected(archive).is_dir()
