"""Guesses of the size of an image by the start of its file."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from models.codec import claimed_pixels

FORMATS = ["jpeg", "png", "gif", "bmp", "webp"]


def file(format_: str, width: int = 37, height: int = 23, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, format_, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", FORMATS)
def test_each_format_shows_its_pixels(format_: str) -> None:
    assert claimed_pixels(file(format_)) == 37 * 23


def test_a_lossless_webp_and_a_progressive_jpeg_show_their_pixels() -> None:
    assert claimed_pixels(file("webp", lossless=True)) == 37 * 23
    assert claimed_pixels(file("jpeg", progressive=True)) == 37 * 23


def test_a_tiff_shows_nothing() -> None:
    assert claimed_pixels(file("tiff")) is None


def test_a_jpeg_with_too_many_segments_shows_nothing() -> None:
    data = file("jpeg")
    assert claimed_pixels(data[:2] + b"\xff\xfe\x00\x02" * 70 + data[2:]) is None


@pytest.mark.parametrize("format_", FORMATS)
@given(st.data())
def test_a_file_that_is_cut_or_changed_anywhere_gives_a_guess_or_nothing(
    format_: str, data: st.DataObject
) -> None:
    whole = bytearray(file(format_, 5, 4))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = claimed_pixels(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    assert found is None or found >= 0
