"""Encoded images that wait for slow readers: bounded in memory, and bounded in all."""

import errno
import gc
import tempfile

import pytest

from app.admission.counters import Counters, Total
from app.pipeline.encoded_files import IDLE, SMALL, EncodedFiles
from models.domain.errors import Cancelled, Overloaded
from tests.fakes import FakeClock

LARGE = SMALL + 1


def data(number: int) -> bytes:
    return bytes([number]) * LARGE


async def test_beyond_the_memory_files_go_to_disk_until_nothing_refers_to_them() -> None:
    files = EncodedFiles(10 * LARGE, in_memory=2 * LARGE)
    kept = [await files.keep(data(n)) for n in range(3)]
    assert [each.in_memory for each in kept] == [True, True, False]
    assert files.memory == 2 * LARGE
    assert kept[2].read() == data(2)
    assert kept[2].read(5, 3) == b"\2\2\2"
    assert kept[2].read(LARGE - 1, 100) == b"\2"
    part = kept[0].read(0, 10)
    assert (part, type(part)) == (data(0)[:10], bytes)  # a copy, which does not hold the rest
    small = await files.keep(bytes(SMALL))
    assert small.in_memory
    kept.clear()
    gc.collect()
    assert files.memory == 0


def test_beyond_the_limit_a_file_that_is_being_read_is_kept_and_a_new_one_refused() -> None:
    clock = FakeClock()
    files = EncodedFiles(2 * LARGE, clock=clock)
    kept = [files.shared(data(n)) for n in range(2)]
    clock.advance(IDLE + 1)
    for each in kept:
        each.read(0, 1)
    with pytest.raises(Overloaded, match="wait to be read"):
        files.shared(data(2))
    assert [each.read() for each in kept] == [data(0), data(1)]


def test_beyond_the_limit_the_file_that_nobody_reads_is_dropped_for_a_new_one() -> None:
    clock = FakeClock()
    files = EncodedFiles(2 * LARGE, clock=clock)
    slow, quick = files.shared(data(0)), files.shared(data(1))
    clock.advance(IDLE + 1)
    quick.read(0, 1)
    new = files.shared(data(2))
    with pytest.raises(Cancelled):
        slow.read()
    assert (quick.read(), new.read()) == (data(1), data(2))


async def test_a_full_disk_leaves_files_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    files = EncodedFiles(10 * LARGE, in_memory=LARGE)
    kept = [await files.keep(data(n)) for n in range(2)]
    assert [each.read() for each in kept] == [data(0), data(1)]


def test_front_ends_share_one_limit_which_can_be_changed_and_give_their_parts_back() -> None:
    counters = Counters()
    ours = EncodedFiles(3 * LARGE, counters=counters)
    theirs = EncodedFiles(3 * LARGE, counters=counters)
    kept = [ours.shared(data(0)), ours.shared(data(1)), theirs.shared(data(2))]
    with pytest.raises(Overloaded, match=f"answers of {3 * LARGE} bytes"):
        theirs.shared(data(3))
    theirs.limit = 4 * LARGE
    kept.append(theirs.shared(data(3)))
    theirs.limit = 3 * LARGE
    assert [each.read() for each in kept] == [data(n) for n in range(4)]
    kept.clear()
    assert counters.total(Total.UNREAD) == 0
    assert theirs.shared(data(3)).read() == data(3)
