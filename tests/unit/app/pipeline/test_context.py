"""What is expected of an image before its header was read."""

import struct

from app.intake.spool import Blob
from app.pipeline.context import ExpectedPixels
from tests.pictures import png


def claiming(width: int, height: int) -> bytes:
    """Return a PNG whose header claims a size that its data do not have."""
    file = bytearray(png(1, 8, 8))
    file[16:24] = struct.pack(">II", width, height)
    return bytes(file)


def expected(file: bytes, most: int) -> int | None:
    pixels = ExpectedPixels(most)
    pixels.content = Blob.of(file)
    return pixels()


def test_the_pixels_are_those_of_the_header() -> None:
    assert expected(claiming(40, 30), 10_000) == 1200


def test_a_size_that_will_be_refused_does_not_count_as_work() -> None:
    assert expected(claiming(0xFFFFFFFF, 0xFFFFFFFF), 50_000_000) is None
    assert expected(claiming(100, 101), 10_000) is None
