"""The folders of processes, and of those that were killed."""

import os
import subprocess
import sys
from pathlib import Path

from app.system.own_folder import own_folder

FOLDER_PREFIX = "darkroom-test"


def test_a_folder_goes_with_its_block_and_takes_those_of_killed_servers_along(
    tmp_path: Path,
) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"{FOLDER_PREFIX}-{gone.pid}-abc").mkdir()
    (tmp_path / f"{FOLDER_PREFIX}-{gone.pid}-abc" / "counter.db").touch()
    kept = {tmp_path / name for name in (f"{FOLDER_PREFIX}-{os.getppid()}-abc", "z")}
    kept.add(tmp_path / f"{FOLDER_PREFIX}-x-y")
    for each in kept:
        each.mkdir()
    with own_folder(FOLDER_PREFIX, tmp_path) as folder:
        assert str(os.getpid()) in folder
        assert {*tmp_path.iterdir()} == kept | {Path(folder)}
    assert {*tmp_path.iterdir()} == kept
