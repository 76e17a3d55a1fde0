"""The data folder: which folders no process writes to any more, and their removal by a sweep."""

import os
import time
from pathlib import Path

from app.jobs.files import ABANDONED, JOBS, MANIFEST, DataFolder


def made(root: Path, name: str, folder_age: float, file_age: float) -> Path:
    """Make the folder of a job with one file; the ages are in parts of ABANDONED."""
    folder = root / JOBS / name
    folder.mkdir(parents=True)
    file = folder / MANIFEST
    file.write_bytes(b"")
    for path, age in ((file, file_age), (folder, folder_age)):
        os.utime(path, times=(time.time() - age * ABANDONED,) * 2)
    return folder


def test_a_folder_is_unchanged_when_no_file_of_it_grows_any_more(tmp_path: Path) -> None:
    made(tmp_path, "new", 0, 0)
    made(tmp_path, "grows", 2, 0.5)
    made(tmp_path, "broken off", 2, 2)
    assert DataFolder(tmp_path).unchanged() == ["broken off"]


def test_a_folder_that_vanishes_during_the_search_is_passed_over(tmp_path: Path) -> None:
    made(tmp_path, "broken off", 2, 2)
    (tmp_path / JOBS / "vanished").symlink_to(tmp_path / "nothing")
    vanishing = made(tmp_path, "vanishing", 2, 2)
    (vanishing / "removed").symlink_to(tmp_path / "nothing")
    assert DataFolder(tmp_path).unchanged() == ["broken off"]
