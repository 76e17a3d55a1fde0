"""The archive of a job whose failed items are tried again: one file for both jobs, or a copy."""

import asyncio
import errno
import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.listing import Asked, Source
from app.jobs.manifest import ManifestWriter, StoredLine
from app.jobs.room import Reservation
from app.jobs.sources import Sources, _shared
from app.jobs.store.jobs import JobRows
from app.jobs.store.values import Job, State
from app.storage.storage import Storage
from models.domain.errors import InvalidParameter, NotFound
from models.domain.job_errors import StorageFull
from models.settings import Settings

SIZE = 5 << 19


def refusing(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_an_archive_is_shared_without_room(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a" * SIZE)
    _shared(tmp_path / "one", tmp_path / "other", lambda _: pytest.fail("nothing is written"))
    assert (tmp_path / "one").samefile(tmp_path / "other")


def test_a_copy_takes_room_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: refusing(errno.EPERM))
    (tmp_path / "one").write_bytes(b"a" * SIZE)
    taken: list[int] = []
    _shared(tmp_path / "one", tmp_path / "other", taken.append)
    assert sum(taken) == SIZE == (tmp_path / "other").stat().st_size

    def full(n_bytes: int) -> None:
        if sum(taken) + n_bytes > SIZE + (1 << 20):
            raise StorageFull("no room")
        taken.append(n_bytes)

    with pytest.raises(StorageFull):
        _shared(tmp_path / "one", tmp_path / "third", full)
    assert (tmp_path / "third").stat().st_size <= 1 << 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ENOENT])
def test_other_errors_make_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: refusing(number))
    (tmp_path / "one").write_bytes(b"a")
    with pytest.raises(OSError, match=os.strerror(number)):
        _shared(tmp_path / "one", tmp_path / "other", lambda _: None)
    assert not (tmp_path / "other").exists()


class OldJob:
    """The rows of one job, which is there until it is removed; its results are one failed item."""

    def __init__(self, folder: DataFolder) -> None:
        self._folder = folder
        self.job: Job | None = Job("0", "me", State.SUCCEEDED, "classify", {}, 1, 1, 1, 5, 1000.0)
        writer = ManifestWriter(folder.add("0") / MANIFEST, 10, 1000)
        writer.add(StoredLine(path="photo.jpg", member=(0, 10, 0)))
        writer.finish()
        (folder.of("0") / ARCHIVE).write_bytes(b"archive")
        (folder.of("0") / "results").write_bytes(b'{"index": 0, "status": "error"}\n')

    async def find(self, _id: str, _client: str) -> Job | None:
        return self.job

    def remove(self, name: str) -> None:
        """Remove the row, then a file, and wait with the others: the order is not known."""
        self.job = None
        (self._folder.of("0") / name).unlink()


def test_a_retry_of_a_job_that_failed_has_the_items_that_were_not_done_too(
    tmp_path: Path,
) -> None:
    folder = DataFolder(tmp_path)
    folder.make()
    old = OldJob(folder)
    (folder.of("0") / ARCHIVE).unlink()
    assert old.job is not None

    async def results(_job: Job) -> AsyncGenerator[bytes, None]:
        for nothing in list[bytes]():
            yield nothing

    async def total(state: State) -> int:
        assert old.job is not None
        old.job = replace(old.job, state=state)
        sources = Sources(cast(Storage, None), folder, cast(JobRows, old), Settings(), 32, results)
        asked = Asked("me", "classify", {}, source=(source := Source(retry_of="0")))
        room = Reservation(cast(Any, None), "1")
        return (await sources.manifest(asked, source, folder.add(state.value), b"", room)).total

    assert asyncio.run(total(State.FAILED)) == 1
    with pytest.raises(InvalidParameter, match="no item of job 0 failed"):
        asyncio.run(total(State.CANCELLED))


@pytest.mark.parametrize("name", [MANIFEST, ARCHIVE])
def test_no_job_is_made_of_one_that_is_removed_meanwhile(tmp_path: Path, name: str) -> None:
    """It would be accepted without its archive, and fail."""
    folder = DataFolder(tmp_path)
    folder.make()
    old = OldJob(folder)

    async def results(_job: Job) -> AsyncGenerator[bytes, None]:
        yield (folder.of("0") / "results").read_bytes()
        old.remove(name)

    async def main() -> None:
        rows, storage = cast(JobRows, old), cast(Storage, None)
        sources = Sources(storage, folder, rows, Settings(), 32, results)
        asked = Asked("me", "classify", {}, source=(source := Source(retry_of="0")))
        room = Reservation(cast(Any, None), "1")
        with pytest.raises(NotFound):
            await sources.manifest(asked, source, folder.add("1"), b"", room)

    asyncio.run(main())
