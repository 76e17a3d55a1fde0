"""The data folder: which folders no process writes to any more, and their removal by a sweep."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.jobs import jobs as sweeping
from app.jobs.files import ABANDONED, JOBS, MANIFEST, DataFolder
from app.jobs.jobs import Jobs
from models.settings import Settings
from tests.fakes import FakeClock
from tests.job_store import SPANS, job, stores


def made(root: Path, name: str, folder_age: float, file_age: float) -> Path:
    """Make the folder of a job with one file; the ages are in parts of ABANDONED."""
    folder = root / JOBS / name
    folder.mkdir(parents=True)
    file = folder / MANIFEST
    file.write_bytes(b"")
    for path, age in ((file, file_age), (folder, folder_age)):
        os.utime(path, times=(time.time() - age * ABANDONED,) * 2)
    return folder


def test_a_folder_is_unchanged_when_no_file_of_it_grows_and_it_does_not_vanish(
    tmp_path: Path,
) -> None:
    made(tmp_path, "new", 0, 0)
    made(tmp_path, "grows", 2, 0.5)
    made(tmp_path, "broken off", 2, 2)
    (tmp_path / JOBS / "vanished").symlink_to(tmp_path / "nothing")
    vanishing = made(tmp_path, "vanishing", 2, 2)
    (vanishing / "removed").symlink_to(tmp_path / "nothing")
    assert DataFolder(tmp_path).unchanged() == ["broken off"]


class Sweeper(Jobs):
    """Jobs that are swept without a runner."""

    def __init__(self, store: Any, folder: DataFolder) -> None:
        self.store, self.folder = store, folder
        self._settings, self._next_search = Settings(), 0.0
        self._runner: Any = SimpleNamespace()
        self.on_states = lambda _states: None


async def test_a_sweep_removes_folders_that_are_no_jobs_once_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(1000.0)
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=clock))
    with stores(None, tmp_path) as store:
        await store.one.add(job("1"), SPANS)
        kept, first = made(tmp_path, "1", 2, 2), made(tmp_path, "2", 2, 2)
        jobs = Sweeper(store.one, DataFolder(tmp_path))
        await jobs.sweep()
        assert (kept.exists(), first.exists()) == (True, False)
        second = made(tmp_path, "3", 2, 2)
        clock.advance(sweeping.SEARCH - 1)
        await jobs.sweep()
        assert second.exists()
        clock.advance(1)
        await jobs.sweep()
        assert (kept.exists(), second.exists()) == (True, False)
