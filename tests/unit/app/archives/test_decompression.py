"""Compressed streams: in steps that another thread can stop, with bounds where content is none."""

import bz2
import gzip
import io
import lzma
import random
from collections.abc import Callable
from typing import cast

import pytest

from app.archives import decompression
from app.archives.decompression import MOST_WITHOUT_CONTENT, PIECE, STREAMS, Decompression
from app.archives.limits import XZ_MEMORY_OF_REQUESTS, ArchiveLimits
from app.archives.source import FileContent
from models.domain.errors import BadArchive

KINDS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)
"""The header of a gzip up to its name, which a zero ends."""


def content(packed: bytes, kind: str, limits: ArchiveLimits | None = None) -> bytes:
    """Return the content of packed bytes, read in pieces of an odd size."""
    made = Decompression(FileContent(io.BytesIO(packed)), kind, limits or ArchiveLimits())
    return b"".join(iter(lambda: made.read(1777), b""))


class Endless:
    """Packed bytes without an end, all alike, that set `stop` at the third read."""

    size = 1 << 40

    def __init__(self, start: bytes, unit: bytes, limits: ArchiveLimits) -> None:
        self._start, self._unit, self._limits = start, unit, limits
        self.reads = 0

    def read_at(self, position: int, size: int) -> bytes:
        self.reads += 1
        if self.reads == 3:
            self._limits.stop.set()
        begun = self._start[position:]
        skipped = max(0, position - len(self._start)) % len(self._unit)
        return (begun + self._unit[skipped:] + self._unit * (size // len(self._unit) + 1))[:size]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", [0, 3, PIECE, 3 * PIECE + 1])
def test_streams_behind_each_other_are_one_with_zeros_between_and_behind(
    kind: str, padding: int
) -> None:
    data = random.Random(1).randbytes(5 * PIECE + 7)
    pack, zeros = KINDS[kind], bytes(padding)
    parts = [data[:100], b"", data[100 : 4 * PIECE], data[4 * PIECE :]]
    assert content(b"".join(pack(each) + zeros for each in parts), kind) == data


@pytest.mark.parametrize("kind", KINDS)
def test_content_that_repeats_itself_comes_whole(kind: str) -> None:
    data = b"ab" * (1 << 20)
    assert content(KINDS[kind](data), kind) == data


def test_a_header_without_end_is_refused() -> None:
    packed = NAMED + b"n" * (MOST_WITHOUT_CONTENT + PIECE)
    with pytest.raises(BadArchive, match="2097152 bytes in a row without content"):
        content(packed, "gz")
    assert content(NAMED + b"n" * PIECE + b"\0" + gzip.compress(b"abc")[10:], "gz") == b"abc"


@pytest.mark.parametrize("kind", KINDS)
def test_many_streams_without_content_are_refused(kind: str) -> None:
    with pytest.raises(BadArchive, match="more than 10000 compressed streams"):
        content(KINDS[kind](b"") * (STREAMS + 1), kind)


def test_many_streams_of_some_content_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "STREAMS", 2)
    block = bytes(range(256)) * 255
    assert content(gzip.compress(block) * 9, "gz") == block * 9


@pytest.mark.parametrize(
    ("kind", "start", "unit"),
    [("gz", NAMED, b"n"), *[(kind, b"", pack(b"")) for kind, pack in KINDS.items()]],
    ids=["name", *KINDS],  # not the bytes: those of gzip have the time
)
def test_another_thread_can_stop_where_there_is_no_content(
    kind: str, start: bytes, unit: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decompression, "STREAMS", 1 << 40)
    limits = ArchiveLimits()
    endless = Endless(start, unit, limits)
    made = Decompression(cast(FileContent, endless), kind, limits)
    with pytest.raises(BadArchive, match="its request has ended"):
        made.read(1)
    assert endless.reads == 3


def test_an_xz_may_ask_for_as_much_memory_as_the_limits_allow() -> None:
    small, large = lzma.compress(b"abc", preset=6), lzma.compress(b"abc", preset=9)
    assert content(large, "xz") == content(small, "xz") == b"abc"
    of_requests = ArchiveLimits(memory=XZ_MEMORY_OF_REQUESTS)
    assert content(small, "xz", of_requests) == b"abc"
    with pytest.raises(lzma.LZMAError, match="Memory usage limit"):
        content(large, "xz", of_requests)
