"""Headers: what opening and guesses read from files, and how files are refused."""

import re
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from models.codec import ImageFormat, claimed_pixels, open_file
from models.domain.errors import TooManyPixels, Undecodable, UnsupportedMedia
from tests.hostile import chunk
from tests.pictures import encoded, exif

LIMIT = 50_000_000


def image_file(
    format: ImageFormat, size: tuple[int, int] = (7, 5), mode: str = "RGB", **options: Any
) -> bytes:
    return encoded(PillowImage.new(mode, size, 100), format.name, **options)


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks)


DRAWN = [format for format in ImageFormat if format is not ImageFormat.HEIF]
"""The formats that Pillow writes; `test_heif.py` has files of HEIF."""


def test_every_format_is_told_by_its_bytes() -> None:
    for format in DRAWN:
        info = open_file(image_file(format), max_pixels=LIMIT).info
        assert (info.format, info.width, info.height, info.orientation) == (format, 7, 5, 1)
        assert info.frames == 1


def test_an_orientation_out_of_range_means_upright() -> None:
    for orientation in [0, 9, 6000]:
        data = image_file(ImageFormat.JPEG, exif=exif(x274=orientation))
        info = open_file(data, max_pixels=LIMIT).info
        assert (info.orientation, info.width, info.height) == (1, 7, 5)


def test_broken_exif_does_not_fail_an_image() -> None:
    for broken in [b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0junk"]:
        data = image_file(ImageFormat.JPEG, exif=broken)
        assert open_file(data, max_pixels=LIMIT).info.orientation == 1


def test_more_than_one_frame_is_told() -> None:
    for name, frames in {"GIF": 2, "TIFF": 2, "PNG": 3, "WEBP": 3, "AVIF": 3}.items():
        first, *others = (PillowImage.new("RGB", (8, 8), (c, 0, 0)) for c in (0, 120, 240))
        data = encoded(first, name, save_all=True, append_images=others)
        assert open_file(data, max_pixels=LIMIT).info.frames == frames


def test_other_formats_are_unsupported_media_and_ours_are_named() -> None:
    for data in [
        b"\0",
        b"hello, world",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"P6 1 1 255\nabc",
        b"%PDF-1.7",
        b"\0\0\0\x18ftypisom\0\0\0\0isommp42",
        b"\0\0\0\x0cJXL \r\n\x87\n",
        b"\xff\xd8",
        b"RIFF\0\0\0\0WAVEfmt ",
        b"8BPS\0\1",
    ]:
        with pytest.raises(UnsupportedMedia, match=r"JPEG, PNG, WEBP, GIF, BMP, TIFF, AVIF, HEIF"):
            open_file(data, max_pixels=LIMIT)


def test_a_format_of_ours_with_a_broken_header_is_undecodable() -> None:
    for magic in [
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"MM\0+",
        b"\0\0\0\x1cftypavif\0\0\0\0avif",
        b"\0\0\0\x1cftypheic\0\0\0\0mif1",
    ]:
        for rest in (b"", b"\0", b"\xff" * 100):
            with pytest.raises(Undecodable, match="corrupt") as caught:
                open_file(magic + rest, max_pixels=LIMIT)
            assert not re.search("object|PIL", caught.value.detail), "it shows the inside"


def test_the_pixel_limit_is_inclusive() -> None:
    for format in DRAWN:
        data = image_file(format)
        assert open_file(data, max_pixels=35).info.width == 7
        with pytest.raises(TooManyPixels, match="7 × 5 pixels, more than the 34 allowed"):
            open_file(data, max_pixels=34)


def stating(format: ImageFormat, name: bytes, at: int, form: str) -> bytes:
    """Return a file that states 14000 × 14000 pixels, at a number of bytes after a name."""
    data = bytearray(image_file(format))
    struct.pack_into(form, data, data.index(name) + at, 14_000, 14_000)
    return bytes(data)


def test_a_file_above_pillows_ceiling_is_refused_with_its_size_and_the_limit() -> None:
    for data in [
        png(14_000, 14_000, chunk(b"IDAT", b"")),
        stating(ImageFormat.GIF, b"GIF8", 6, "<HH"),
        stating(ImageFormat.BMP, b"BM", 18, "<ii"),
        stating(ImageFormat.AVIF, b"ispe", 8, ">II"),
    ]:
        with pytest.raises(
            TooManyPixels, match="14000 × 14000 pixels, more than the 50,000,000 allow"
        ):
            open_file(data, max_pixels=LIMIT)


def test_a_gif_frame_larger_than_its_screen_counts_with_its_own_size() -> None:
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 60_000, 2_000, 0) + b"\x08\x00;"
    with pytest.raises(TooManyPixels, match="60000 × 2000"):
        open_file(screen + frame, max_pixels=LIMIT)


def test_a_compressed_chunk_that_unpacks_to_megabytes_is_undecodable() -> None:
    for name in [b"zTXt", b"iCCP"]:
        bomb = chunk(name, b"k\0\0" + zlib.compress(bytes(4 << 20)))
        with pytest.raises(Undecodable):
            open_file(png(1, 1, bomb, chunk(b"IDAT", b"")), max_pixels=LIMIT)


GUESSED = [format for format in DRAWN if format.name not in ("TIFF", "AVIF")]


def test_each_format_but_tiff_shows_its_pixels() -> None:
    for format_ in GUESSED:
        assert claimed_pixels(image_file(format_, (37, 23))) == 37 * 23
    assert claimed_pixels(image_file(ImageFormat.TIFF)) is None


def test_a_jpeg_with_too_many_segments_shows_nothing() -> None:
    data = image_file(ImageFormat.JPEG)
    assert claimed_pixels(data[:2] + b"\xff\xfe\x00\x02" * 70 + data[2:]) is None


@pytest.mark.parametrize("format_", GUESSED)
@given(st.data())
def test_a_file_that_is_cut_or_changed_anywhere_gives_a_guess_or_nothing(
    format_: ImageFormat, data: st.DataObject
) -> None:
    whole = bytearray(image_file(format_, (5, 4)))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = claimed_pixels(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    assert found is None or found >= 0
