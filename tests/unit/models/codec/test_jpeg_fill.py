"""Bytes between the segments of a JPEG are searched once, and bounded as the parser reads them."""

import time

import pytest

from models.codec.jpeg import MAX_FILL, check_jpeg
from models.domain.errors import Undecodable
from tests.pictures import jpeg

LIMIT = 1_000_000


def filled(fill: bytes, data: bytes) -> bytes:
    return data[:2] + fill + data[2:]


@pytest.mark.parametrize("fill", [b"\xff" * 9, b"\xff\xff\0" * 3, bytes(9), b"\xff\0\x01" * 3])
def test_a_little_fill_does_not_matter(fill: bytes) -> None:
    assert check_jpeg(filled(fill, jpeg()), LIMIT) == check_jpeg(jpeg(), LIMIT)


@pytest.mark.parametrize("end", [b"", b"\0", b"\0" + jpeg()[2:]])
def test_long_fill_is_searched_once(end: bytes) -> None:
    data = b"\xff\xd8" + b"\xff" * 60_000 + end
    start = time.thread_time()
    with pytest.raises(Undecodable, match="bytes or more between its segments"):
        check_jpeg(data, LIMIT)
    assert time.thread_time() - start < 1.0  # a search from each byte took 30 s


@pytest.mark.parametrize("fill", [b"\xff", b"\0", b"\xff\0", b"a"])
def test_fill_counts_without_a_marker_behind_it_too(fill: bytes) -> None:
    short = b"\xff\xd8\xff\xfe\0\2" + fill * (MAX_FILL // 2)
    assert check_jpeg(short, LIMIT) > 0
    with pytest.raises(Undecodable, match="bytes or more between its segments"):
        check_jpeg(short + fill * (MAX_FILL // 2 + 1), LIMIT)
