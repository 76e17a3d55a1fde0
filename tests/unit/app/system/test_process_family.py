"""What the processes of a server use, whether they live, and the folders that they leave."""

import os
import subprocess
import sys
from pathlib import Path

from app.system.process_family import is_alive, own_folder, process_family

FOLDER_PREFIX = "darkroom-test"
SLEEPER = "import time; print('runs', flush=True); time.sleep(60)"


def test_a_child_follows_its_parent() -> None:
    command = [sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            found = {use.pid: use for use in process_family(os.getpid())}
        finally:
            child.kill()
    assert found[child.pid].parent == os.getpid()
    assert found[child.pid].words[-1] == SLEEPER
    assert found[child.pid].resident > 1 << 20
    assert list(found).index(os.getpid()) < list(found).index(child.pid)


def test_a_process_is_alive_and_has_a_use_until_its_end_was_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(child.pid)
    child.communicate(b"\n")
    assert not is_alive(child.pid)
    assert list(process_family(child.pid)) == []
    assert is_alive(os.getpid())


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
