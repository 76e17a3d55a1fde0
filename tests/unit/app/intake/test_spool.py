import asyncio
import errno
import gc
import hashlib
import os
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.intake import spool as spool_module
from app.intake.spool import MEMORY, PART, TINY, Blob, MemoryShare, MemoryUse, Spool, keep
from models.domain.errors import Overloaded, TooLarge
from models.settings import Settings

SMALL = 1 << 16


async def spooled(*chunks: bytes, limit: int = 1 << 20, threshold: int = 1 << 20) -> Blob:
    async with Spool(limit, threshold) as spool:
        for chunk in chunks:
            await spool.write(chunk)
        return await spool.finish()


def open_files() -> set[str]:
    """Return the targets of this process's descriptors that are regular files."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/") and not target.startswith(("/dev", "/proc")):
            found.add(f"{name} {target}")
    return found


needs_proc = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc, which is not here"
)


def test_a_body_of_one_chunk_is_that_very_object() -> None:
    chunk = bytes(100)
    blob = asyncio.run(spooled(b"", chunk, b""))
    assert blob.read() is chunk
    assert blob.read() is chunk
    assert blob.size == 100


def test_a_body_up_to_the_threshold_stays_in_memory_and_one_byte_more_goes_to_disk() -> None:
    assert not asyncio.run(spooled(bytes(6), bytes(4), threshold=10)).on_disk
    blob = asyncio.run(spooled(bytes(6), bytes(5), threshold=10))
    assert blob.on_disk
    blob.close()


def test_bodies_go_to_disk_while_those_in_memory_fill_their_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_module, "MEMORY", memory := MemoryUse(PART * (SMALL + 1) + TINY))
    first = asyncio.run(spooled(bytes(SMALL + 1)))
    second, tiny = asyncio.run(spooled(bytes(SMALL + 1))), asyncio.run(spooled(bytes(TINY)))
    assert [first.on_disk, second.on_disk, tiny.on_disk] == [False, True, False]
    assert memory.held == first.size + tiny.size
    first.close()
    first.close()
    assert memory.held == tiny.size
    third = asyncio.run(spooled(bytes(SMALL + 1)))
    assert not third.on_disk
    for each in (second, tiny, third):
        each.close()
    assert memory.held == 0


def test_bodies_that_still_arrive_fill_the_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MEMORY", memory := MemoryUse(PART * (SMALL + 1) + SMALL))

    async def scenario() -> None:
        async with Spool(1 << 20, 1 << 20) as arriving:
            await arriving.write(bytes(SMALL + 1))
            assert memory.held == SMALL + 1
            blob = await spooled(bytes(SMALL + 1))
            assert blob.on_disk
            blob.close()
        assert memory.held == 0
        async with Spool(1 << 20, 1 << 20) as moved:
            await moved.write(bytes(SMALL + 1))
            await moved.write(bytes(PART * SMALL // 2))
            assert memory.held == 0, "it went to disk"

    asyncio.run(scenario())


def test_large_bodies_leave_room_for_smaller_ones_in_memory() -> None:
    memory = MemoryUse(100 * SMALL)
    memory.add(60 * SMALL)
    assert memory.full(3 * SMALL)
    assert not memory.full(2 * SMALL)


def test_many_tiny_bodies_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MEMORY", memory := MemoryUse(4 * TINY))
    held = [asyncio.run(spooled(bytes(TINY))) for _ in range(6)]
    assert not any(each.on_disk for each in held)
    with pytest.raises(Overloaded) as refused:
        asyncio.run(spooled(b"1"))
    assert refused.value.reason == "memory_bytes"
    held.append(asyncio.run(spooled(bytes(TINY + 1))))
    assert held[-1].on_disk
    for each in held:
        each.close()
    assert memory.held == 0


@pytest.mark.parametrize("threshold", [0, 1 << 20])
def test_bytes_that_are_kept_are_a_body(monkeypatch: pytest.MonkeyPatch, threshold: int) -> None:
    monkeypatch.setattr(spool_module, "THRESHOLD", threshold)
    blob = keep(b"image", Settings())
    assert (blob.read(), blob.on_disk) == (b"image", threshold == 0)
    with pytest.raises(TooLarge):
        keep(bytes(11), Settings(max_image_bytes=10))


def test_a_share_of_the_memory_goes_up_and_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MEMORY", memory := MemoryUse(100))
    with MemoryShare() as share:
        for size in (50, 20, 150):
            share.resize(size)
            assert memory.held == size
        with pytest.raises(Overloaded):
            share.resize(151)
    assert memory.held == 0


def test_nothing_written_is_an_empty_blob() -> None:
    blob = asyncio.run(spooled())
    assert (blob.size, blob.read()) == (0, b"")


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 60))
def test_what_is_read_is_what_was_written(chunks: list[bytes], threshold: int) -> None:
    blob = asyncio.run(spooled(*chunks, threshold=threshold))
    assert blob.read() == blob.read() == b"".join(chunks)
    assert blob.size == sum(map(len, chunks))
    assert blob.on_disk == (blob.size > threshold)
    blob.close()


def test_the_limit_itself_fits_and_one_byte_more_does_not() -> None:
    assert asyncio.run(spooled(bytes(10), limit=10)).size == 10
    with pytest.raises(TooLarge, match="10"):
        asyncio.run(spooled(bytes(10), b".", limit=10))


def test_an_announced_size_over_the_limit_is_refused_before_the_first_byte() -> None:
    spool = Spool(10, 10)
    spool.expect(10)
    with pytest.raises(TooLarge, match="11 bytes"):
        spool.expect(11)


@pytest.mark.parametrize("threshold", [0, 100])
def test_a_blob_may_be_closed_twice_and_then_reads_no_more(threshold: int) -> None:
    blob = asyncio.run(spooled(b"bytes", threshold=threshold))
    blob.close()
    blob.close()
    with pytest.raises(ValueError, match="closed"):
        blob.read()


async def fail(_spool: Spool) -> None:
    raise RuntimeError


async def grow_too_large(spool: Spool) -> None:
    await spool.write(bytes(1000))


async def be_cancelled(spool: Spool) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await spool.write(bytes(10))


@needs_proc
@pytest.mark.parametrize("accident", [fail, grow_too_large, be_cancelled])
def test_an_accident_while_spooling_leaves_no_file_open(
    accident: Callable[[Spool], Awaitable[None]],
) -> None:
    async def scenario() -> None:
        async with Spool(100, 0) as spool:
            await spool.write(b"on disk")
            assert len(open_files()) == len(before) + 1
            await accident(spool)

    before = open_files()
    with pytest.raises((RuntimeError, TooLarge, asyncio.CancelledError)):
        asyncio.run(scenario())
    assert open_files() == before


@needs_proc
def test_a_closed_blob_has_no_file_and_a_forgotten_one_closes_itself() -> None:
    before = open_files()
    closed, forgotten = (asyncio.run(spooled(b"on disk", threshold=0)) for _ in range(2))
    assert len(open_files()) == len(before) + 2
    closed.close()
    assert len(open_files()) == len(before) + 1
    del forgotten
    gc.collect()
    assert open_files() == before


@needs_proc
def test_the_digest_of_a_file_holds_one_piece_of_it_and_leaves_its_position() -> None:
    content = bytes(range(256)) * (32 << 10) + b"odd end"
    blob = asyncio.run(spooled(content, limit=len(content), threshold=0))
    assert blob._file is not None
    blob._file.seek(5)
    tracemalloc.start()
    try:
        digest = blob.digest()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert digest == hashlib.sha256(content).digest()
    assert blob._file.tell() == 5
    blob.close()


@needs_proc
def test_a_file_has_no_name_from_the_start() -> None:
    async def scenario() -> None:
        async with Spool(100, 0) as spool:
            await spool.write(b"on disk")
            assert all("(deleted)" in new for new in open_files() - before)

    before = open_files()
    asyncio.run(scenario())


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no /dev/full")


def on_full_disk(*_mode: str) -> Any:
    """Return a file whose disk is full, in place of a temporary one."""
    return open("/dev/full", "w+b")


@needs_full
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_full_disk_is_an_overload(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small body fails when it is flushed, a large one when it is written."""
    monkeypatch.setattr(spool_module, "TemporaryFile", on_full_disk)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Overloaded) as refused:
        asyncio.run(spooled(bytes(size), threshold=0))
    assert (refused.value.reason, refused.value.status) == ("disk", 503)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_free_descriptor_is_an_overload(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_descriptors(*_mode: str) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(spool_module, "TemporaryFile", without_descriptors)
    memory = MEMORY.held
    with pytest.raises(Overloaded, match="no free descriptor"):
        asyncio.run(spooled(b"on disk", threshold=0))
    assert MEMORY.held == memory


def test_another_error_of_the_disk_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_mode: str) -> Any:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(spool_module, "TemporaryFile", broken)
    with pytest.raises(OSError, match="broken"):
        asyncio.run(spooled(b"on disk", threshold=0))
