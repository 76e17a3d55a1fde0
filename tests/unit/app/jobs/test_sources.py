"""The items of jobs without a manifest: files in storage, and failed items with their archive."""

import asyncio
import errno
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from app.jobs.files import ARCHIVE, MANIFEST, DataFolder
from app.jobs.manifest import ManifestLine, ManifestWriter, StoredLine
from app.jobs.receiving import Room
from app.jobs.results import failed_records
from app.jobs.sources import JobRequest, JobSource, ManifestSources, _shared, failed_lines, made_of
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Job, State
from app.storage.storage import Storage
from models.domain.errors import InternalError, InvalidParameter, NotFound, StorageFull
from models.settings import Settings

SIZE = 5 << 19
ROOM = Room(1 << 30, StorageFull("full"))

RECORDS = b"".join(
    json.dumps({"index": n, "status": "error" if n % 3 == 0 else "ok", "x": "é" * n}).encode()
    + b"\n"
    for n in reversed(range(50))
)


async def pieces(size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(RECORDS), size):
        yield RECORDS[start : start + size]


def test_failed_items_are_found_in_records_of_any_order(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    given = [
        {"url": f"https://a.example/{n}"} | ({"id": f"i{n}"} if n % 2 else {}) for n in range(50)
    ]
    manifest.write_text("".join(json.dumps(each) + "\n" for each in given))

    async def main() -> list[ManifestLine]:
        return [line async for line in failed_lines(pieces(7), manifest, 50)]

    found = asyncio.run(main())
    assert [line.url for line in found] == [f"https://a.example/{n}" for n in range(0, 50, 3)]
    assert [line.id for line in found] == [f"i{n}" if n % 2 else f"{n}" for n in range(0, 50, 3)]


def test_items_without_a_record_are_found_if_they_are_asked_for(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    lines = [json.dumps({"url": f"https://a.example/{n}"}) + "\n" for n in range(60)]
    manifest.write_text("".join(lines))

    async def main() -> list[ManifestLine]:
        found = failed_lines(pieces(7), manifest, 60, unrecorded=True)
        return [line async for line in found]

    numbers = [int((line.id or "").partition(" ")[0]) for line in asyncio.run(main())]
    assert numbers == [*range(0, 50, 3), *range(50, 60)]


def test_a_damaged_manifest_is_an_error_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text('{"url": "https://a.exam')

    async def main() -> None:
        with pytest.raises(InternalError, match="damaged"):
            async for _ in failed_lines(pieces(7), tmp_path / "manifest.jsonl", 50):
                pass

    asyncio.run(main())


def test_records_that_failed_are_sent_whole() -> None:
    async def main() -> bytes:
        return b"".join([bytes(piece) async for piece in failed_records(pieces(11))])

    found = [json.loads(line)["index"] for line in asyncio.run(main()).splitlines()]
    assert found == [n for n in reversed(range(50)) if n % 3 == 0]


def test_a_job_without_a_manifest_has_the_chunks_of_its_server_and_counts_its_bytes(
    tmp_path: Path,
) -> None:
    async def lines() -> AsyncIterator[StoredLine]:
        for number in range(500):
            yield StoredLine(url=f"https://a.example/{number}")

    written: list[int] = []
    made = made_of(lines(), tmp_path, Settings(), b"", 200, "nothing", written.append)
    received = asyncio.run(made)
    assert [each.count for each in received.spans] == [200, 200, 100]
    assert len(written) == 500
    assert sum(written) == (tmp_path / MANIFEST).stat().st_size < received.stored


def test_a_record_of_many_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look copies what has come: a record with images has hundreds of pieces."""
    looks: list[object] = []
    to_thread = asyncio.to_thread

    async def counted(function: Callable[..., Any], *given: Any) -> Any:
        looks.append(function)
        return await to_thread(function, *given)

    monkeypatch.setattr(asyncio, "to_thread", counted)

    async def record() -> AsyncIterator[bytes]:
        yield b'{"index": 0, "status": "error", "x": "'
        for _ in range(1000):
            yield b"x" * 100
        yield b'"}\n'

    async def main() -> bytes:
        return b"".join([bytes(piece) async for piece in failed_records(record())])

    assert len(asyncio.run(main())) > 100_000
    assert len(looks) == 1


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

    def full(_n_bytes: int) -> None:
        raise StorageFull("no room")

    with pytest.raises(StorageFull):
        _shared(tmp_path / "one", tmp_path / "third", full)
    assert not (tmp_path / "third").exists()


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
        sources = ManifestSources(
            cast(Storage, None), folder, cast(JobRows, old), Settings(), 32, results
        )
        asked = JobRequest("me", "classify", {}, source=(source := JobSource(retry_of="0")))
        return (await sources.manifest(asked, source, folder.add(state.value), b"", ROOM)).total

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
        sources = ManifestSources(storage, folder, rows, Settings(), 32, results)
        asked = JobRequest("me", "classify", {}, source=(source := JobSource(retry_of="0")))
        with pytest.raises(NotFound):
            await sources.manifest(asked, source, folder.add("1"), b"", ROOM)

    asyncio.run(main())
