"""Bytes that a thread appends to a file."""

import errno
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from app.bulk.outputs import appender
from app.bulk.outputs.appender import Appender
from tests.server import until


class NearlyFull(io.BytesIO):
    """A file that takes at most seven bytes at a time, as a disk does whose space runs out."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data[:7]))


class Full(io.BytesIO):
    """A file without space."""

    def write(self, _data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_bytes_are_written_wholly_and_in_order_even_in_pieces() -> None:
    file = NearlyFull()
    records = Appender(file)
    for number in range(9):
        records.add(b"record %d\n" % number)
    records.close()
    assert file.getvalue() == b"".join(b"record %d\n" % number for number in range(9))


def test_a_disk_that_takes_long_to_sync_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncing, go_on = threading.Event(), threading.Event()

    def sync(_descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(30)

    monkeypatch.setattr(appender, "SYNC", -1.0)
    monkeypatch.setattr(os, "fdatasync", sync)
    with (tmp_path / "file").open("ab", buffering=0) as file:
        records = Appender(file)
        records.add(b"first\n")
        assert syncing.wait(30)
        records.add(b"second\n")  # this waited for the disk before there was a thread
        go_on.set()
        records.close()
    assert (tmp_path / "file").read_bytes() == b"first\nsecond\n"


def test_an_error_of_the_disk_is_raised_by_a_later_call() -> None:
    records = Appender(Full())
    records.add(b"record\n")
    until(lambda: records._error is not None)
    with pytest.raises(OSError, match="No space left"):
        records.add(b"record\n")
    with pytest.raises(OSError, match="No space left"):
        records.close()


def test_no_more_bytes_wait_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "MOST_WAITING", 0)
    go_on, file = threading.Event(), NearlyFull()
    monkeypatch.setattr(file, "write", lambda data: go_on.wait(30) and len(data))
    records = Appender(file)
    records.add(b"first")
    second = threading.Thread(target=records.add, args=(b"second",))
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go_on.set()
    second.join(30)
    assert not second.is_alive()
    records.close()
