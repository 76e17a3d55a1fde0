"""Files that would take too much time or memory are refused, and estimates cover what is taken."""

import struct
import time
from collections.abc import Callable

import pytest
from PIL import Image, ImageCms

from app.decoders.pool import EXPENSIVE
from models import codec
from models.codec import (
    ImageFormat,
    ImageInfo,
    check_decode_memory,
    decode,
    decode_memory,
    encoded,
    open_file,
    open_plain,
)
from models.codec.colour import MAX_BYTES as MAX_PROFILE
from models.codec.colour import MAX_TAGS, is_matrix_profile
from models.codec.jpeg import check_jpeg
from models.codec.metadata import MAX_BLOCK, MAX_BYTES, MAX_ENTRIES
from models.domain.errors import TooManyPixels, Undecodable
from models.settings import Settings
from tests import hostile
from tests.hostile import in_first_scan, large_tile, profile_of_stages, segment
from tests.memory import traced
from tests.pictures import drawing, jpeg
from tests.pictures import encoded as file_of

LIMIT = 50_000_000
PROGRESSIVE = hostile.small("JPEG", progressive=True)
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
        codec.open_file(hostile.jpeg_of_scans(), max_pixels=LIMIT)
    assert error.value.detail == (
        "the JPEG has 90 scans over 49,000,000 pixels, and at most 16 are allowed for that size; "
        "save it anew"
    )


def behind_soi(*segments: bytes) -> bytes:
    return PROGRESSIVE[:2] + b"".join(segments) + PROGRESSIVE[2:]


def animated(format_: str) -> bytes:
    frames = [Image.new("P", (8, 8), n % 250) for n in range(1500)]
    return file_of(frames[0], format_, save_all=True, append_images=frames[1:], duration=[1] * 1500)


UNUSUAL: dict[str, tuple[int, int, Callable[[], bytes]]] = {
    "a hundred scans of a small image": (64, 64, lambda: hostile.jpeg_of_scans(100, 64)),
    "scans in a video behind the image": (16, 16, lambda: PROGRESSIVE + b"\xff\xda" * 500),
    "scans in a thumbnail": (16, 16, lambda: behind_soi(segment(0xE5, b"\xff\xda" * 300))),
    "much metadata": (16, 16, lambda: behind_soi(*[segment(0xE1, b"http:" + bytes(60_000))] * 500)),
    "a strip for each row": (8, 5000, lambda: hostile.tiff_of_strips(5000)),
    "run lengths": (8, 8, lambda: hostile._bmp(8, 8, b"\x08\x05\0\0" * 8 + b"\0\1")),
    "a long GIF": (8, 8, lambda: animated("GIF")),
    "a long WEBP": (8, 8, lambda: animated("WEBP")),
    "a long PNG": (8, 8, lambda: animated("PNG")),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_an_unusual_file_that_costs_little_is_read(kind: str) -> None:
    width, height, make = UNUSUAL[kind]
    found = codec.decode(make(), max_pixels=LIMIT)
    assert (found.info.width, found.info.height) == (width, height)


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


def test_a_directory_of_many_entries_is_refused_in_any_segment() -> None:
    for few, many in [
        (with_exif(directory(MAX_ENTRIES)), with_exif(directory(MAX_ENTRIES + 1))),
        (with_exif(directory(99, MOST)), with_exif(directory(30_000, MOST))),
        (with_exif(directory(99, 2 * MOST - 1)), with_exif(directory(5000, 2 * MOST - 1))),
        (with_index(directory(MAX_ENTRIES)), with_index(directory(MAX_ENTRIES + 1))),
    ]:
        for read in (encoded, open_plain):
            assert read(few, max_pixels=LIMIT) is not None
            with pytest.raises(Undecodable, match="too many entries; remove it"):
                read(many, max_pixels=LIMIT)


def test_a_million_markers_in_a_scan_take_little_memory() -> None:
    for marker in [b"\xff\0", b"\xff\xd0", b"\xff\xff"]:
        data = in_first_scan(marker * 1_000_000)
        with traced() as peak:
            check_jpeg(data, LIMIT)
            assert peak() < 1 << 20  # an array of their places took 8 bytes for each


def test_scans_behind_fill_bytes_are_counted() -> None:
    empty = b"\xff\xff\xff\xda\0\2"
    with pytest.raises(Undecodable, match=r"\d+ scans over 4,096 pixels, and at most 100"):
        check_jpeg(in_first_scan(empty * 100), LIMIT)


_HEAD = 38
"""Bytes of a block beside its text."""


def block(size: int) -> bytes:
    """Return EXIF of `size` bytes with an orientation and a long description."""
    entries = struct.pack("<HHII", 0x010E, 2, size - _HEAD, _HEAD)
    entries += struct.pack("<HHII", 0x0112, 3, 1, 6)
    head = b"II*\0" + struct.pack("<IH", 8, 2) + entries + bytes(4)
    return head + b"a" * (size - len(head))


def with_block(kind: str, exif: bytes) -> bytes:
    return file_of(Image.new("RGB", (8, 4)), kind, exif=exif)


def test_a_longer_block_does_not_count() -> None:
    for kind in ["PNG", "WEBP", "AVIF"]:
        found = open_file(with_block(kind, block(2 * MAX_BYTES)), max_pixels=100)
        assert found.info.orientation == 1
        assert found.describe(colour=False).exif == {}


def test_a_block_that_no_file_could_keep_is_read_and_left_out() -> None:
    for kind in ["PNG", "WEBP", "AVIF"]:
        sizes = MAX_BLOCK - 100, MAX_BLOCK + 100
        small, large = (decode(with_block(kind, block(size)), max_pixels=100) for size in sizes)
        assert small.exif is not None
        assert large.exif is None
        assert large.info.orientation == small.info.orientation


LATE = (b"A2B0", b"A2B1", b"B2A0", b"D2B0", b"D2B1", b"B2D0")
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def changed(at: int, new: bytes, profile: bytes = SRGB) -> bytes:
    return profile[:at] + new + profile[at + len(new) :]


def entry(name: bytes) -> int:
    """Return the place of a tag in the table of sRGB."""
    return SRGB.index(name, 128)


def test_a_profile_that_is_no_matrix_for_certain_is_a_doubt() -> None:
    for profile in [
        *(changed(entry(b"cprt"), name) for name in (*LATE, b"gamt", b"ncl2", b"clrt", b"pseq")),
        b"",
        SRGB[:128],
        SRGB[:200],
        SRGB[:-1],
        SRGB + bytes(MAX_PROFILE),
        profile_of_stages(),
        changed(12, b"link"),
        changed(12, b"nmcl"),
        changed(16, b"CMYK"),
        changed(20, b"Lab "),
        changed(128, struct.pack(">I", MAX_TAGS + 1)),
        changed(128, struct.pack(">I", (1 << 32) - 1)),
        changed(entry(b"rXYZ"), b"wtpt"),
        changed(entry(b"cprt"), b"rXYZ"),
        changed(entry(b"rTRC") + 4, struct.pack(">II", (1 << 32) - 1, (1 << 32) - 1)),
    ]:
        assert not is_matrix_profile(profile)
    for profile in [changed(entry(b"cprt"), b"A2B0"), profile_of_stages(), bytes(200)]:
        data = file_of(drawing(40, 30), icc_profile=profile)
        assert open_plain(data, max_pixels=LIMIT) is None, "a thread opens it"


def test_an_image_with_a_profile_of_stages_counts_as_expensive() -> None:
    for profile, expensive in (
        (profile_of_stages(), True),
        (SRGB, False),
        (bytes(200), False),
        (b"", False),
    ):
        data = file_of(drawing(40, 30), icc_profile=profile)
        assert (open_file(data, max_pixels=LIMIT).cost >= EXPENSIVE) is expensive


def test_a_tile_that_is_larger_than_its_image_is_counted_with_all_its_bits() -> None:
    for samples, bits in [(1, 8), (3, 8), (3, 16), (4, 16)]:
        data = large_tile(64, 512, samples, bits)
        opened = open_file(data, max_pixels=LIMIT)
        tile = 512 * 512 * samples * bits // 8
        assert opened.memory == len(data) + 64 * 64 * 4 + tile
        opened.decode()


@pytest.mark.parametrize(("mode", "compression"), [("RGBA", "tiff_lzw"), ("L", "jpeg")])
def test_a_strip_is_counted_beside_its_image_and_a_jpeg_in_it_with_four_bytes_a_pixel(
    mode: str, compression: str
) -> None:
    image = Image.new(mode, (600, 400))
    data = file_of(image, "TIFF", compression=compression, tiffinfo={278: 400})
    opened = open_file(data, max_pixels=LIMIT)
    assert opened.memory == decode_memory(opened.info, len(data), buffers=600 * 400 * 4)


def test_the_first_of_two_equal_tags_counts_as_in_libtiff() -> None:
    data = large_tile(64, 1024, 1, 8, beside=[(322, 4, 1, 64), (323, 4, 1, 64)])
    assert open_file(data, max_pixels=LIMIT).memory > 1024 * 1024


def info(format_: ImageFormat, mode: str, side: int = 1000) -> ImageInfo:
    return ImageInfo(format_, side, side, 1, 1, mode, fast_jpeg=False)


def test_a_jpeg_of_several_scans_takes_its_coefficients_beside_its_pixels() -> None:
    for chroma, progressive, bytes_per_pixel in [
        ("4:2:0", True, 3),
        ("4:2:2", True, 4),
        ("4:4:4", True, 6),
        ("4:4:4", False, 0),
    ]:
        picture = Image.new("RGB", (640, 480))
        data = file_of(picture, subsampling=chroma, progressive=progressive)
        opened = open_file(data, max_pixels=640 * 480)
        expected = decode_memory(opened.info, len(data), coefficients=bytes_per_pixel)
        assert opened.memory == expected
        assert expected >= len(data) + 640 * 480 * (bytes_per_pixel + 3)


def test_an_image_whose_decoding_needs_more_than_is_allowed_is_refused_with_both_numbers() -> None:
    large = info(ImageFormat.AVIF, "RGB", 7000)
    needed = decode_memory(large, 0)
    check_decode_memory(large, needed, needed)
    with pytest.raises(TooManyPixels, match=r"443 MiB.*320 allowed"):
        check_decode_memory(large, needed, 320 << 20)


def test_24_megapixels_are_decoded_by_default_and_22_of_webp() -> None:
    for format_ in list(ImageFormat):
        width = 5400 if format_ is ImageFormat.WEBP else 6000
        photo = ImageInfo(format_, width, 4000, 1, 1, "RGB", fast_jpeg=False)
        needed = decode_memory(photo, 3_000_000)
        check_decode_memory(photo, needed, Settings().decode_memory)
        assert needed <= 270_000_000


def test_a_transparent_colour_counts_as_alpha() -> None:
    for mode, colour in [("L", 7), ("RGB", (1, 2, 3))]:
        sizes = []
        for options in ({}, {"transparency": colour}):
            data = file_of(Image.new(mode, (40, 30)), "PNG", **options)
            opened = open_file(data, max_pixels=40 * 30)
            assert opened.info.most_channels == opened.decode().image.channels
            sizes.append(decode_memory(opened.info, 0))
        assert sizes[0] < sizes[1]
