"""What a file can cost is bounded before it is spent; what encoders write stays far below."""

import io
import struct
import time
import zlib

import pytest
from PIL import Image

from models import codec
from models.codec import gif, jpeg
from models.domain.errors import TooManyPixels, Undecodable
from tests import hostile
from tests.pictures import as_image

LIMIT = 50_000_000
SECONDS = 2.0
"""Of CPU time; without bounds each of these took 3 to 30."""


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_hostile_files_are_refused_at_once(kind: str) -> None:
    data = hostile.KINDS[kind]()
    start = time.thread_time()
    with pytest.raises((Undecodable, TooManyPixels)) as error:
        codec.decode(data, max_pixels=LIMIT)
    assert time.thread_time() - start < SECONDS
    assert len(error.value.detail) < 300


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("jpeg_of_scans", "90 scans over 49,000,000 pixels, and at most 16 are allowed"),
        ("jpeg_with_fill", "bytes or more between its segments, and at most 4,096"),
        ("png_of_chunks", "more than 21,718 chunks, and a file of its size has at most 21,718"),
        ("tiff_of_one_giant_tile", "tiles of 20000 × 20000 pixels in an image of 4,096"),
        ("tiff_of_strips", "700,000 strips, and at most 65,536 are allowed"),
        ("gif_with_a_giant_frame", "65000 × 65000 pixels, more than the 50,000,000 allowed"),
        ("bmp_of_deltas", "32,000,000 bytes of run lengths, and at most 4,194,304"),
        ("webp_with_a_giant_canvas", "16384 × 16384 pixels, more than the 50,000,000 allowed"),
        ("avif_of_items", "60,000 items, and at most 4,096 are allowed"),
    ],
)
def test_a_refusal_says_what_was_found_what_is_allowed_and_what_to_do(
    kind: str, words: str
) -> None:
    with pytest.raises((Undecodable, TooManyPixels)) as error:
        codec.probe(hostile.KINDS[kind](), max_pixels=LIMIT)
    assert words in error.value.detail
    assert error.value.detail.split("; ")[-1] in ("save it anew", "send it smaller")


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


def test_a_png_in_chunks_of_a_kilobyte_is_read() -> None:
    image = Image.effect_noise((1500, 1500), 80)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=0)
    plain = file.getvalue()
    start, end = plain.find(b"IDAT") - 4, len(plain) - 12
    pixels = b"".join(plain[at + 8 : at + 8 + size] for at, size in _chunks(plain, start, end))
    pieces = (pixels[at : at + 1024] for at in range(0, len(pixels), 1024))
    data = plain[:start] + b"".join(hostile.chunk(b"IDAT", each) for each in pieces) + plain[end:]
    assert as_image(codec.decode(data, max_pixels=LIMIT).image).pixels.tobytes() == image.tobytes()


@pytest.mark.parametrize(("count", "read"), [(1, True), (2, True), (17, False), (5000, False)])
def test_a_png_may_have_a_few_profiles_although_one_is_right(count: int, read: bool) -> None:
    plain = hostile.small("PNG")
    bomb = hostile.chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(1000)))
    at = plain.find(b"IDAT") - 4
    data = plain[:at] + bomb * count + plain[at:]
    if read:
        assert codec.probe(data, max_pixels=LIMIT).width == 16
        return
    with pytest.raises(Undecodable, match="more than 16 colour profiles, and a file has one"):
        codec.probe(data, max_pixels=LIMIT)


def _chunks(data: bytes, at: int, end: int) -> list[tuple[int, int]]:
    found = []
    while at < end:
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((at, size))
        at += size + 12
    return found


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


def test_limits_leave_room_above_what_encoders_write() -> None:
    assert jpeg.MAX_SCANS >= 5 * 15
    assert gif.MAX_EXTENSIONS >= 100 * 5
