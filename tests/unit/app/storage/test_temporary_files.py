"""What a killed process leaves of its writes is removed, and nothing else."""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.storage.storage import Storage
from app.storage.temporary_files import OLD, make
from models.settings import Settings

WRITER = """
import os, sys
from app.storage.local_writing import Writing
from app.storage.location import parse
writing = Writing(parse(sys.argv[1] + "/image.png"), parse(sys.argv[1]))
writing.add(b"half of an image")
print("written", flush=True)
sys.stdin.read()
"""


def tidy(folder: Path) -> list[str]:
    """Remove what is abandoned; return the names that are left."""

    async def main() -> None:
        storage = Storage.from_settings(Settings(storage_allow_write=(folder.as_uri(),)))
        try:
            await storage.tidy(storage.writable(folder.as_uri()))
            await storage.tidy(storage.writable(folder.as_uri() + "/not-there"))
        finally:
            storage.close()

    asyncio.run(main())
    return sorted(each.name for each in folder.iterdir())


def test_a_file_stays_while_its_process_lives_and_goes_after_that(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, tmp_path.as_uri()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        (name,) = tidy(tmp_path)
        assert name.startswith(".darkroom-")
        process.kill()
    assert tidy(tmp_path) == []


def test_files_of_others_stay(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_PATH)
    name, descriptor = make(folder)
    os.close(descriptor)
    os.close(folder)
    stay = [
        name + ".jpg",
        ".darkroom-0123456789abcdef.tmp",  # of a command, which locks none
        ".darkroom-00000000-0123456789abcdef.tmp",  # of another host, perhaps in work
        "image.png",
    ]
    for each in stay:
        (tmp_path / each).write_bytes(b"content")
    folder_of_a_user = name.replace(name[-5], "0" if name[-5] != "0" else "1")
    (tmp_path / folder_of_a_user).mkdir()
    assert tidy(tmp_path) == sorted([*stay, folder_of_a_user])

    foreign = tmp_path / stay[2]
    os.utime(foreign, (0.0, foreign.stat().st_mtime - OLD - 60))
    assert tidy(tmp_path) == sorted([*stay[:2], "image.png", folder_of_a_user])


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that tidies meanwhile finds it without its lock."""
    locked = list[int]()

    def flock(descriptor: int, _kind: int) -> None:
        if not locked:
            os.unlink(os.readlink(f"/proc/self/fd/{descriptor}"))
        locked.append(descriptor)

    monkeypatch.setattr(fcntl, "flock", flock)
    folder = os.open(tmp_path, os.O_PATH)
    name, descriptor = make(folder)
    os.close(folder)
    os.close(descriptor)
    assert len(locked) == 2
    assert [each.name for each in tmp_path.iterdir()] == [name]
