"""Encoded images that wait for slow readers: bounded in memory, and bounded in all."""

import asyncio
import errno
import gc
import tempfile

import pytest

from app.admission.counters import Counters, Total
from app.pipeline.results import encoded_files
from app.pipeline.results.encoded_files import IDLE, SMALL, EncodedFile, EncodedFiles
from models.domain.errors import Cancelled, Overloaded
from tests.fakes import FakeClock

LARGE = SMALL + 1


def data(number: int) -> bytes:
    return bytes([number]) * LARGE


async def moved(files: EncodedFiles) -> None:
    assert files.moving is not None
    await files.moving


async def test_beyond_the_memory_the_files_read_longest_ago_move_to_disk() -> None:
    files = EncodedFiles(10 * LARGE, in_memory=2 * LARGE, settled=0)
    first, second, third = (files.keep(data(n)) for n in range(3))
    assert first.read(0, 1) == b"\0"
    await moved(files)
    assert [each.on_disk for each in (first, second, third)] == [False, True, False]
    assert (files.memory, files.total) == (2 * LARGE, 3 * LARGE)
    assert second.read() == data(1)
    assert second.read(5, 3) == b"\1\1\1"
    assert second.read(LARGE - 1, 100) == b"\1"


async def test_a_file_that_was_made_or_read_a_moment_ago_stays_in_memory() -> None:
    files = EncodedFiles(10 * LARGE, in_memory=LARGE, settled=1000)
    kept = [files.keep(data(n)) for n in range(3)]
    assert files.moving is not None
    await asyncio.sleep(0)
    assert not any(each.on_disk for each in kept)
    assert not files.moving.done()
    files.close()


async def test_a_file_counts_until_nothing_refers_to_it_any_more() -> None:
    files = EncodedFiles(10 * LARGE, in_memory=LARGE, settled=0)
    kept = [files.keep(data(n)) for n in range(3)]
    await moved(files)
    kept.clear()
    gc.collect()
    assert (files.memory, files.total) == (0, 0)


def test_small_files_and_those_within_the_budget_stay_where_they_are() -> None:
    files = EncodedFiles(10 * LARGE, in_memory=2 * LARGE, settled=0)
    kept = [files.keep(bytes(SMALL)) for _ in range(100)] + [files.keep(data(0)) for _ in range(2)]
    assert files.moving is None
    assert not any(each.on_disk for each in kept)


def test_beyond_the_limit_a_file_that_is_being_read_is_kept_and_a_new_one_refused() -> None:
    clock = FakeClock()
    files = EncodedFiles(2 * LARGE, clock=clock)
    kept = [files.keep(data(n)) for n in range(2)]
    clock.advance(IDLE + 1)
    for each in kept:
        each.read(0, 1)
    with pytest.raises(Overloaded, match="wait to be read"):
        files.keep(data(2))
    assert [each.read() for each in kept] == [data(0), data(1)]


def test_beyond_the_limit_the_file_that_nobody_reads_is_dropped_for_a_new_one() -> None:
    clock = FakeClock()
    files = EncodedFiles(2 * LARGE, clock=clock)
    slow, quick = files.keep(data(0)), files.keep(data(1))
    clock.advance(IDLE + 1)
    quick.read(0, 1)
    new = files.keep(data(2))
    with pytest.raises(Cancelled):
        slow.read()
    assert (quick.read(), new.read()) == (data(1), data(2))
    assert files.total == 2 * LARGE


async def test_a_file_that_is_dropped_while_it_is_moved_leaves_nothing_behind() -> None:
    clock = FakeClock()
    files = EncodedFiles(2 * LARGE, in_memory=LARGE, settled=0, clock=clock)
    slow, quick = files.keep(data(0)), files.keep(data(1))
    await asyncio.sleep(0)
    clock.advance(IDLE + 1)
    quick.read(0, 1)
    new = files.keep(data(2))
    await moved(files)
    assert not slow.on_disk
    assert files.total == quick.size + new.size
    assert files.memory <= LARGE


async def test_a_full_disk_leaves_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    files = EncodedFiles(10 * LARGE, in_memory=LARGE, settled=0)
    kept = [files.keep(data(n)) for n in range(2)]
    await moved(files)
    assert [each.read() for each in kept] == [data(0), data(1)]


def test_a_part_of_a_file_does_not_hold_the_rest() -> None:
    whole = data(7)
    part = EncodedFile(whole).read(0, 10)
    assert part == whole[:10]
    assert isinstance(part, bytes)
    assert len(whole) > encoded_files.SMALL


def test_front_ends_share_one_limit_and_each_gives_its_part_back() -> None:
    counters = Counters()
    ours = EncodedFiles(3 * LARGE, counters=counters)
    theirs = EncodedFiles(3 * LARGE, counters=counters)
    kept = [ours.keep(data(0)), ours.keep(data(1)), theirs.keep(data(2))]
    with pytest.raises(Overloaded, match=f"answers of {3 * LARGE} bytes"):
        theirs.keep(data(3))
    kept.clear()
    assert counters.total(Total.UNREAD) == 0
    assert theirs.keep(data(3)).read() == data(3)


def test_the_limit_can_be_changed_while_files_are_kept() -> None:
    files = EncodedFiles(LARGE)
    kept = files.keep(data(0))
    files.set_limit(2 * LARGE)
    assert files.limit() == 2 * LARGE
    second = files.keep(data(1))
    files.set_limit(LARGE)
    with pytest.raises(Overloaded):
        files.keep(data(2))
    assert [kept.read(), second.read()] == [data(0), data(1)]
