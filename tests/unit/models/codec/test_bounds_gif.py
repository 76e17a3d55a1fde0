"""Pillow's parser reads no more of a GIF that passes `check_gif` than its limits allow."""

import io
from collections.abc import Callable

import pytest
from PIL.GifImagePlugin import GifImageFile

from models.codec import decode
from models.codec.gif import MAX_FILL, check_gif
from models.domain.errors import Undecodable
from tests.hostile import small

LIMIT = 1_000_000
GIF = small("GIF")
PICTURE = GIF.index(b",\0\0\0\0\x10\0\x10\0")
REPEATS = b"!\xff\x0bNETSCAPE2.0"


def before_the_picture(content: bytes) -> bytes:
    return GIF[:PICTURE] + content + GIF[PICTURE:]


def behind_the_picture(content: bytes) -> bytes:
    return GIF[:-1] + content


PLACES = [before_the_picture, behind_the_picture]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("byte", [b"\0", b"x", b"\xff"])
def test_bytes_between_blocks_are_bounded_whatever_they_are(
    place: Callable[[bytes], bytes], byte: bytes
) -> None:
    assert check_gif(place(byte * MAX_FILL), LIMIT) > 0
    with pytest.raises(Undecodable, match="65,537 bytes or more between its blocks"):
        check_gif(place(byte * (MAX_FILL + 1)), LIMIT)


@pytest.mark.parametrize(
    ("place", "start"),
    [
        *[(place, b"!\xf9\0") for place in PLACES],
        *[(place, b"!\x01\0") for place in PLACES],
        *[(place, b"x!\xf9\0") for place in PLACES],
        (before_the_picture, REPEATS + b"\0"),
        (before_the_picture, REPEATS + b"\3\1\0\0"),
    ],
)
def test_blocks_are_counted_behind_an_empty_one_that_the_parser_reads_over(
    place: Callable[[bytes], bytes], start: bytes
) -> None:
    data = place(start + b"\1a" * 10_000 + b"\0")
    with pytest.raises(Undecodable, match="blocks before its second frame"):
        check_gif(data, LIMIT)


@pytest.mark.parametrize(
    "content",
    [
        b"x" * 99,
        b"!\xf9\0\0",
        b"!\xf9\0\1a\0",
        b"!\xfe\0",
        REPEATS + b"\0\0",
        REPEATS + b"\3\1\0\0\0",
    ],
)
def test_what_breaks_a_rule_and_is_short_is_decoded(content: bytes) -> None:
    data = before_the_picture(content)
    assert GifImageFile(io.BytesIO(data)).size == (16, 16)
    assert decode(data, max_pixels=LIMIT).info.width == 16
