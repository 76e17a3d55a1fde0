"""Local folders; `test_buckets.py` has the other schemes."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from app.storage.location import parse
from app.storage.storage import Storage
from models.domain.errors import (
    AddressRefused,
    InvalidParameter,
    NotFound,
    OriginFailed,
    ServiceError,
    StorageFull,
    TooLarge,
)
from models.settings import Settings


@asynccontextmanager
async def storage_of(folder: Path) -> AsyncIterator[Storage]:
    """Provide a storage that may read and write below `folder`."""
    settings = Settings(storage_allow=(folder.as_uri(),), storage_allow_write=(folder.as_uri(),))
    with closing(Storage.from_settings(settings)) as storage:
        yield storage


def until(condition: Callable[[], bool]) -> None:
    """Wait for a thread of the storage."""
    while not condition():
        os.sched_yield()


async def read(storage: Storage, path: Path, limit: int = 1 << 30) -> bytes:
    pieces = storage.pieces(storage.readable(path.as_uri()), limit)
    return b"".join([piece async for piece in pieces])


async def listed(storage: Storage, path: Path) -> set[str]:
    return {each async for each in storage.list(storage.readable(path.as_uri()))}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_told_from_other_failures_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    async with storage_of(tmp_path) as storage:
        target = storage.writable((tmp_path / "a").as_uri())
        with pytest.raises(StorageFull, match="a: its disk, or the quota on it, is full"):
            await storage.write(target, b"content")
    until(lambda: not [*tmp_path.iterdir()])


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20])
async def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "a%20 b#?.bin").write_bytes(os.urandom(size))

    async with storage_of(tmp_path) as storage:
        found = await read(storage, tmp_path / "a%20 b#?.bin", limit=size)
        assert found == (tmp_path / "a%20 b#?.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "error", "match"),
    [
        ("in/none.jpg", NotFound, "there is no such file"),
        ("in/link.jpg", OriginFailed, "only regular files"),
        ("in/pipe", OriginFailed, "a link, a device or a pipe; only regular files"),
        ("in/folder", OriginFailed, "is a folder"),
        ("in", OriginFailed, "is a folder"),
        ("in/large", TooLarge, "1001 bytes; one image has at most 1000"),
        ("in2/a", AddressRefused, "the operator allows prefixes with DARKROOM_STORAGE_ALLOW"),
    ],
)
async def test_any_other_address_is_refused(
    tmp_path: Path, name: str, error: type[ServiceError], match: str
) -> None:
    allowed, beside = tmp_path / "in", tmp_path / "in2"
    for each in (allowed, beside, allowed / "folder"):
        each.mkdir()
    (beside / "a").write_bytes(b"secret")
    (allowed / "large").write_bytes(bytes(1001))
    (allowed / "link.jpg").symlink_to(beside / "a")
    os.mkfifo(allowed / "pipe")
    path = tmp_path / name

    async with storage_of(allowed) as storage:
        with pytest.raises(error, match=match):
            await read(storage, path, limit=1000)


async def test_a_link_to_a_folder_outside_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.jpg").write_bytes(b"secret")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")

    async with storage_of(tmp_path / "in") as storage:
        with pytest.raises(InvalidParameter, match="not followed"):
            await read(storage, tmp_path / "in" / "link" / "a.jpg")
        assert await listed(storage, tmp_path / "in") == set()
        target = storage.writable((tmp_path / "in" / "link" / "new").as_uri())
        with pytest.raises(InvalidParameter, match="not followed"):
            await storage.write(target, b"x")
        assert [each.name for each in (tmp_path / "out").iterdir()] == ["a.jpg"]


async def test_the_allowed_folder_itself_may_be_a_link_and_is_never_written_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a").write_bytes(b"image")
    (tmp_path / "data").symlink_to(tmp_path / "disk")

    async with storage_of(tmp_path / "data") as storage:
        assert await read(storage, tmp_path / "data" / "a") == b"image"
        with pytest.raises(InvalidParameter, match="not a file below it"):
            await storage.write(storage.writable((tmp_path / "data").as_uri()), b"x")


async def test_a_listing_has_regular_files_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "1.jpg").write_bytes(b"1")
    (tmp_path / "a" / "b" / "2.jpg").write_bytes(b"22")
    (tmp_path / ".hidden").write_bytes(b"3")
    (tmp_path / "link").symlink_to(tmp_path / "1.jpg")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "many").mkdir()
    for number in range(600):
        (tmp_path / "many" / f"{number}").touch()

    async with storage_of(tmp_path) as storage:
        found = await listed(storage, tmp_path)
        assert len(found) == 602
        assert found > {"1.jpg", "a/b/2.jpg", "many/599"}
        assert await listed(storage, tmp_path / "a") == {"b/2.jpg"}


async def test_names_that_are_not_utf_8_are_listed_and_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(b"image")

    async with storage_of(tmp_path) as storage:
        folder = storage.readable(tmp_path.as_uri())
        [name] = [each async for each in storage.list(folder)]
        assert str(folder.below(name)).endswith("/%FF.jpg")
        pieces = storage.pieces(folder.below(name), 100)
        assert [piece async for piece in pieces] == [b"image"]


async def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield bytes([number]) * 1000

    async with storage_of(tmp_path) as storage:
        target = storage.writable((tmp_path / "a" / "b.bin").as_uri())
        await storage.write(target, b"old")
        await storage.write(target, pieces())
        assert (tmp_path / "a" / "b.bin").read_bytes() == b"\0" * 1000 + b"\1" * 1000 + b"\2" * 1000
        await storage.write(target, b"")
        assert (tmp_path / "a" / "b.bin").read_bytes() == b""
        assert [each.name for each in (tmp_path / "a").iterdir()] == ["b.bin"]


async def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    async with storage_of(tmp_path) as storage:
        target = storage.writable((tmp_path / "a.bin").as_uri())
        await storage.write(target, b"old")
        with pytest.raises(ZeroDivisionError):
            await storage.write(target, broken())
    until(lambda: len(list(tmp_path.iterdir())) == 1)
    assert (tmp_path / "a.bin").read_bytes() == b"old"


async def test_a_link_at_the_place_of_a_written_file_is_replaced_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "precious").write_bytes(b"old")
    (tmp_path / "in" / "a").symlink_to(tmp_path / "precious")

    async with storage_of(tmp_path / "in") as storage:
        await storage.write(storage.writable((tmp_path / "in" / "a").as_uri()), b"new")
    assert (tmp_path / "precious").read_bytes() == b"old"
    assert (tmp_path / "in" / "a").read_bytes() == b"new"


def test_what_may_be_read_may_not_be_written(tmp_path: Path) -> None:
    storage = Storage.from_settings(Settings(storage_allow=(tmp_path.as_uri(),)))
    with pytest.raises(AddressRefused, match="DARKROOM_STORAGE_ALLOW_WRITE"):
        storage.writable((tmp_path / "a").as_uri())
    with pytest.raises(AddressRefused, match="DARKROOM_STORAGE_ALLOW_WRITE"):
        asyncio.run(storage.write(parse((tmp_path / "a").as_uri()), b""))
    storage.close()


@pytest.mark.parametrize("prefix", ["file:///a/../b", "file:///a//b", "s3://x/"])
def test_a_wrong_prefix_ends_the_start(prefix: str) -> None:
    with pytest.raises(ValueError, match="DARKROOM_STORAGE_ALLOW: '"):
        Storage.from_settings(Settings(storage_allow=(prefix,)))


@pytest.mark.parametrize("setting", ["storage_allow", "storage_allow_write"])
@pytest.mark.parametrize("allowed", ["", "data", "data/jobs", "link"])
def test_the_folder_of_jobs_cannot_be_allowed_and_a_folder_beside_it_can(
    tmp_path: Path, setting: str, allowed: str
) -> None:
    """A client could read the images and results of others, by a link as well."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    given = {setting: ((tmp_path / allowed).as_uri(),), "data_folder": tmp_path / "data"}
    with pytest.raises(ValueError, match=f"DARKROOM_{setting.upper()}: .* overlaps"):
        Storage.from_settings(Settings.model_validate(given))
    given[setting] = ((tmp_path / "data2").as_uri(),)
    Storage.from_settings(Settings.model_validate(given)).close()


@pytest.mark.parametrize("name", [b"a file", b"no text \xff"])
async def test_a_file_is_no_folder_to_write_to(tmp_path: Path, name: bytes) -> None:
    """Its name is told to clients, and so is text."""
    path = tmp_path / os.fsdecode(name)
    path.write_bytes(b"content")

    async with storage_of(tmp_path) as storage:
        for inner in ("", "/deeper"):
            with pytest.raises(InvalidParameter, match="is no folder") as caught:
                await storage.check_folder(storage.writable(path.as_uri() + inner))
            caught.value.detail.encode()
        await storage.check_folder(storage.writable((tmp_path / "new" / "one").as_uri()))
        assert not (tmp_path / "new").exists()
