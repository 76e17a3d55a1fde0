"""Large EXIF blocks do not count."""

import struct
from io import BytesIO

import pytest
from PIL import Image

from models.codec import Decoded, decode, open_file
from models.codec.metadata import MAX_BLOCK, MAX_BYTES, affordable

_HEAD = 38
"""Bytes of a block beside its text."""


def block(size: int) -> bytes:
    """Return EXIF of `size` bytes with an orientation and a long description."""
    entries = struct.pack("<HHII", 0x010E, 2, size - _HEAD, _HEAD)
    entries += struct.pack("<HHII", 0x0112, 3, 1, 6)
    head = b"II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)
    return head + b"a" * (size - len(head))


def picture(kind: str, exif: bytes) -> bytes:
    file = BytesIO()
    Image.new("RGB", (8, 4)).save(file, kind, exif=exif)
    return file.getvalue()


def decoded(data: bytes) -> Decoded:
    return decode(data, max_pixels=100)


def test_a_block_of_a_megabyte_is_the_longest_that_is_read() -> None:
    assert affordable(block(MAX_BYTES))
    assert not affordable(block(MAX_BYTES + 1))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "AVIF"])
def test_a_longer_block_does_not_count(kind: str) -> None:
    found = open_file(picture(kind, block(2 * MAX_BYTES)), max_pixels=100)
    assert found.info.orientation == 1
    assert found.describe(colour=False).exif == {}


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "AVIF"])
def test_a_block_that_no_file_could_keep_is_read_and_left_out(kind: str) -> None:
    sizes = MAX_BLOCK - 100, MAX_BLOCK + 100
    small, large = (decoded(picture(kind, block(size))) for size in sizes)
    assert small.exif is not None
    assert large.exif is None
    assert large.info.orientation == small.info.orientation
