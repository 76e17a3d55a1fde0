"""The scans and metadata of a JPEG are bounded before a parser reads them."""

import struct
import tracemalloc

import pytest

from models.codec import encoded, open_plain
from models.codec.jpeg import check_jpeg
from models.codec.metadata import MAX_ENTRIES
from models.domain.errors import Undecodable
from tests.hostile import in_first_scan, segment
from tests.pictures import jpeg

LIMIT = 1_000_000


MOST = 65_520
"""Bytes of metadata that one segment holds."""


def directory(entries: int, start: int = 8) -> bytes:
    """Return metadata whose directory of this number of entries begins at `start`."""
    content = b"".join(struct.pack("<HHII", 1000 + n, 3, 4, 8) for n in range(entries))
    return (
        struct.pack("<2sHI", b"II", 42, start).ljust(start, b"\0")
        + struct.pack("<H", entries)
        + content
        + bytes(4)
    )


def with_exif(metadata: bytes) -> bytes:
    parts = (metadata[at : at + MOST] for at in range(0, len(metadata), MOST))
    return jpeg()[:2] + b"".join(segment(0xE1, b"Exif\0\0" + part) for part in parts) + jpeg()[2:]


def with_index(metadata: bytes) -> bytes:
    return jpeg()[:2] + segment(0xE2, b"MPF\0" + metadata) + jpeg()[2:]


@pytest.mark.parametrize(
    ("few", "many"),
    [
        (with_exif(directory(MAX_ENTRIES)), with_exif(directory(MAX_ENTRIES + 1))),
        (with_exif(directory(99, MOST)), with_exif(directory(30_000, MOST))),
        (with_exif(directory(99, 2 * MOST - 1)), with_exif(directory(5000, 2 * MOST - 1))),
        (with_index(directory(MAX_ENTRIES)), with_index(directory(MAX_ENTRIES + 1))),
    ],
    ids=["one segment", "in the second segment", "across segments", "index"],
)
def test_a_directory_of_many_entries_is_refused_in_any_segment(few: bytes, many: bytes) -> None:
    for read in (encoded, open_plain):
        assert read(few, max_pixels=LIMIT) is not None
        with pytest.raises(Undecodable, match="too many entries; remove it"):
            read(many, max_pixels=LIMIT)


@pytest.mark.parametrize("marker", [b"\xff\0", b"\xff\xd0", b"\xff\xff"])
def test_a_million_markers_in_a_scan_take_little_memory(marker: bytes) -> None:
    data = in_first_scan(marker * 1_000_000)
    tracemalloc.start()
    try:
        check_jpeg(data, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # an array of their places took 8 bytes for each


def test_scans_behind_fill_bytes_are_counted() -> None:
    empty = b"\xff\xff\xff\xda\0\2"
    with pytest.raises(Undecodable, match=r"\d+ scans over 4,096 pixels, and at most 100"):
        check_jpeg(in_first_scan(empty * 100), LIMIT)
