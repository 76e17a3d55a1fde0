"""Temporary folders of processes, and what becomes of them."""

import os
import subprocess
import sys
from pathlib import Path

from app.system.process_family import own_folder

FOLDER_PREFIX = "darkroom-test"


def test_the_folder_goes_with_the_block(tmp_path: Path) -> None:
    with own_folder(FOLDER_PREFIX, tmp_path) as folder:
        assert str(os.getpid()) in folder
        assert Path(folder).is_dir()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_server_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"{FOLDER_PREFIX}-{gone.pid}-abc").mkdir()
    (tmp_path / f"{FOLDER_PREFIX}-{gone.pid}-abc" / "counter.db").touch()
    with own_folder(FOLDER_PREFIX, tmp_path) as folder:
        assert [Path(folder)] == list(tmp_path.iterdir())


def test_what_belongs_to_a_living_server_or_to_others_stays(tmp_path: Path) -> None:
    kept = [
        tmp_path / f"{FOLDER_PREFIX}-{os.getppid()}-abc",
        tmp_path / f"{FOLDER_PREFIX}-x-y",
        tmp_path / "z",
    ]
    for folder in kept:
        folder.mkdir()
    with own_folder(FOLDER_PREFIX, tmp_path):
        assert all(folder.exists() for folder in kept)
