"""The scans of a JPEG are counted without memory for each of its markers."""

import tracemalloc

import pytest

from models.codec.jpeg import check_jpeg
from models.domain.errors import Undecodable
from tests.chaos.hostile.jpeg import in_first_scan

LIMIT = 1_000_000


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


def test_segments_in_scans_are_counted() -> None:
    with pytest.raises(Undecodable, match="more than 1,000 segments"):
        check_jpeg(in_first_scan(b"\xff\x01" * 2000), LIMIT)


def test_scans_behind_fill_bytes_are_counted() -> None:
    empty = b"\xff\xff\xff\xda\0\2"
    with pytest.raises(Undecodable, match=r"\d+ scans over 4,096 pixels, and at most 100"):
        check_jpeg(in_first_scan(empty * 100), LIMIT)
