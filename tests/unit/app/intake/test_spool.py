import asyncio
import errno
import gc
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.intake import spool as spool_module
from app.intake.spool import MEMORY, THRESHOLD, TINY, Blob, MemoryUse, Spool, keep
from models.domain.errors import Overloaded, TooLarge

SMALL = 1 << 16


async def spooled(*chunks: bytes, limit: int = 1 << 20) -> Blob:
    with Spool(limit) as spool:
        for chunk in chunks:
            await spool.write(chunk)
        return spool.finish()


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


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryUse:
    """Return an empty budget in place of the budget of the process."""
    gc.collect()  # what earlier tests left would be given back to this budget
    monkeypatch.setattr(spool_module, "MEMORY", found := MemoryUse())
    return found


@pytest.fixture
def to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send every body to disk."""
    monkeypatch.setattr(spool_module, "THRESHOLD", 0)


def test_bodies_go_to_disk_while_those_in_memory_fill_their_budget(memory: MemoryUse) -> None:
    memory.limit = SMALL + TINY
    assert asyncio.run(spooled(bytes(THRESHOLD + 1), limit=1 << 30)).on_disk
    first = asyncio.run(spooled(bytes(SMALL)))
    second, tiny = asyncio.run(spooled(bytes(SMALL))), asyncio.run(spooled(bytes(TINY)))
    assert [first.on_disk, second.on_disk, tiny.on_disk] == [False, True, False]
    assert memory.held == first.size + tiny.size
    first.close()
    first.close()
    assert memory.held == tiny.size
    third = asyncio.run(spooled(bytes(SMALL)))
    assert not third.on_disk
    for each in (second, tiny, third):
        each.close()
    assert memory.held == 0


async def test_bodies_that_still_arrive_fill_the_budget_too(memory: MemoryUse) -> None:
    memory.limit = SMALL

    with Spool(1 << 20) as arriving:
        await arriving.write(bytes(SMALL))
        await arriving.write(bytes(1))
        assert memory.held == 0, "it went to disk"
    with Spool(1 << 20) as arriving:
        await arriving.write(bytes(SMALL))
        assert memory.held == SMALL
    assert memory.held == 0


@pytest.mark.parametrize("on_disk", [True, False])
def test_bytes_that_are_kept_are_a_body(on_disk: bool, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("to_disk" if on_disk else "memory")
    blob = keep(b"image", 10)
    assert (blob.read(), blob.on_disk) == (b"image", on_disk)
    blob.close()
    blob.close()
    with pytest.raises(ValueError, match="closed"):
        blob.read()
    with pytest.raises(TooLarge):
        keep(bytes(11), 10)


@pytest.mark.parametrize("disk", ["memory", "to_disk"])
def test_what_is_read_is_what_was_written(disk: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(disk)
    chunks = [b"one", b"", b"two", bytes(50)]
    blob = asyncio.run(spooled(*chunks))
    assert blob.read() == blob.read() == b"".join(chunks)
    assert (blob.size, blob.start(4)[:4]) == (56, b"onet")
    blob.close()


def test_the_limit_itself_fits_and_one_byte_more_does_not() -> None:
    assert asyncio.run(spooled(bytes(10), limit=10)).size == 10
    with pytest.raises(TooLarge, match="10"):
        asyncio.run(spooled(bytes(10), b".", limit=10))


async def fail(_spool: Spool) -> None:
    raise RuntimeError


async def grow_too_large(spool: Spool) -> None:
    await spool.write(bytes(1000))


async def be_cancelled(spool: Spool) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await spool.write(bytes(10))


@pytest.mark.usefixtures("to_disk")
@pytest.mark.parametrize("accident", [fail, grow_too_large, be_cancelled])
def test_an_accident_while_spooling_leaves_no_file_open(
    accident: Callable[[Spool], Awaitable[None]],
) -> None:
    async def scenario() -> None:
        with Spool(100) as spool:
            await spool.write(b"on disk")
            assert len(open_files()) == len(before) + 1
            await accident(spool)

    before = open_files()
    with pytest.raises((RuntimeError, TooLarge, asyncio.CancelledError)):
        asyncio.run(scenario())
    assert open_files() <= before


@pytest.mark.usefixtures("to_disk")
def test_a_closed_blob_has_no_file_and_a_forgotten_one_closes_itself() -> None:
    gc.collect()  # what earlier tests have left must not be closed meanwhile
    before = open_files()
    closed, forgotten = (asyncio.run(spooled(b"on disk")) for _ in range(2))
    assert len(open_files()) == len(before) + 2
    closed.close()
    assert len(open_files()) == len(before) + 1
    del forgotten
    gc.collect()
    assert open_files() <= before


def on_full_disk(*_mode: str) -> Any:
    """Return a file whose disk is full, in place of a temporary one."""
    return open("/dev/full", "w+b")


def failing(number: int) -> Callable[..., Any]:
    """Return a function that makes no temporary file."""

    def fail(*_mode: str) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.usefixtures("to_disk")
@pytest.mark.parametrize(
    ("temporary", "size", "error"),
    [
        (on_full_disk, 1, Overloaded),
        (on_full_disk, 1 << 20, Overloaded),
        (failing(errno.EMFILE), 7, Overloaded),
        (failing(errno.ENFILE), 7, Overloaded),
        (failing(errno.EIO), 7, OSError),
    ],
    ids=["full-small", "full-large", "EMFILE", "ENFILE", "EIO"],
)
def test_a_full_disk_or_table_of_files_is_an_overload_and_nothing_is_held(
    temporary: Callable[..., Any],
    size: int,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_module, "TemporaryFile", temporary)
    files, held = len(os.listdir("/proc/self/fd")), MEMORY.held
    with pytest.raises(error) as refused:
        asyncio.run(spooled(bytes(size)))
    if isinstance(refused.value, Overloaded):
        assert refused.value.reason == "disk"
    assert len(os.listdir("/proc/self/fd")) <= files
    assert MEMORY.held == held
