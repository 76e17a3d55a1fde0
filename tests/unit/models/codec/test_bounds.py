"""What a file can cost is bounded before it is spent; what encoders write stays far below."""

import io
import struct
import time

import pytest
from PIL import Image

from models import codec
from models.domain.errors import TooManyPixels, Undecodable
from tests import hostile
from tests.pictures import as_image

LIMIT = 50_000_000
SECONDS = 2.0
"""Of CPU time; without bounds each of these took 3 to 30."""


@pytest.mark.parametrize("kind", hostile.REFUSED)
def test_hostile_files_are_refused_at_once(kind: str) -> None:
    data = hostile.REFUSED[kind]()
    start = time.thread_time()
    with pytest.raises((Undecodable, TooManyPixels)) as error:
        codec.decode(data, max_pixels=LIMIT)
    assert time.thread_time() - start < SECONDS
    assert len(error.value.detail) < 300


def test_a_refusal_says_what_was_found_what_is_allowed_and_what_to_do() -> None:
    with pytest.raises(Undecodable) as error:
        codec.probe(hostile.jpeg_of_scans(), max_pixels=LIMIT)
    assert error.value.detail == (
        "the JPEG has 90 scans over 49,000,000 pixels, and at most 16 are allowed for that size; "
        "save it anew"
    )


def test_a_small_progressive_jpeg_may_have_a_hundred_scans() -> None:
    found = codec.decode(hostile.jpeg_of_scans(100, 64), max_pixels=LIMIT)
    assert (found.info.width, found.info.height) == (64, 64)


def test_scans_are_counted_up_to_the_end_of_the_image_alone() -> None:
    data = hostile.small("JPEG", progressive=True) + b"\xff\xda" * 500  # a phone's video, say
    assert codec.decode(data, max_pixels=LIMIT).info.width == 16


def test_a_thumbnail_inside_a_segment_has_no_scans_of_the_image() -> None:
    plain = hostile.small("JPEG", progressive=True)
    body = b"thumbnail" + b"\xff\xda" * 300
    segment = b"\xff\xe5" + struct.pack(">H", len(body) + 2) + body
    assert codec.decode(plain[:2] + segment + plain[2:], max_pixels=LIMIT).info.width == 16


def test_a_photo_with_a_long_profile_and_much_metadata_is_read() -> None:
    plain = hostile.small("JPEG")
    body = b"http://ns.adobe.com/xmp/extension/\0" + bytes(60_000)
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    assert codec.decode(plain[:2] + segment * 500 + plain[2:], max_pixels=LIMIT).info.width == 16


def test_a_small_tiff_with_one_tile_of_512_is_read() -> None:
    data = hostile.tiff_of_one_giant_tile(512)
    assert as_image(codec.decode(data, max_pixels=LIMIT).image).pixels.shape == (64, 64, 1)


def test_a_tiff_of_a_strip_a_row_is_read() -> None:
    data = hostile.tiff_of_strips(5000)
    assert as_image(codec.decode(data, max_pixels=LIMIT).image).pixels.shape == (5000, 8, 1)


def test_a_run_length_bmp_is_read() -> None:
    runs = b"\x08\x05\0\0" * 8 + b"\0\1"
    found = codec.decode(hostile._bmp(8, 8, runs), max_pixels=LIMIT)
    assert as_image(found.image).pixels.shape == (8, 8, 3)


def test_an_animation_of_many_frames_is_read() -> None:
    frames = [Image.new("P", (8, 8), n % 250) for n in range(1500)]
    for format_ in ("GIF", "WEBP", "PNG"):
        file = io.BytesIO()
        frames[0].save(file, format_, save_all=True, append_images=frames[1:], duration=[1] * 1500)
        assert codec.decode(file.getvalue(), max_pixels=LIMIT).info.width == 8


def test_costs_grow_with_scans() -> None:
    few = codec.open_file(hostile.jpeg_of_scans(2, 512), max_pixels=LIMIT).cost
    many = codec.open_file(hostile.jpeg_of_scans(90, 512), max_pixels=LIMIT).cost
    assert many > 10 * few
