"""HEIF files of three makers' layouts, upright and in sRGB; damaged files; costs."""

import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from models.codec import ImageFormat, decode, open_file
from models.codec.containers import heif_buffers
from models.codec.formats import identify
from models.domain.errors import TooManyPixels, Undecodable
from tests.pictures import HEIF, as_image

LIMIT = 1_000_000


def file(name: str) -> bytes:
    return (HEIF / name).read_bytes()


def picture(width: int, height: int) -> NDArray[np.uint8]:
    """Return the picture of the files: ramps of colour, and red at the top left."""
    y, x = np.mgrid[0:height, 0:width]
    ramps = (
        30 + x * 180 // width,
        40 + y * 170 // height,
        60 + (x + y) * 120 // (width + height),
    )
    drawn = np.stack(ramps, -1).astype(np.uint8)
    drawn[: height // 4, : width // 4] = 220, 40, 30
    return drawn


UPRIGHT = picture(88, 120)
SMALL = picture(64, 48)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("iphone.heic", UPRIGHT),
        ("samsung.heic", UPRIGHT),
        ("canon.hif", UPRIGHT),
        ("exif.heic", np.rot90(UPRIGHT)),  # EXIF does not turn a HEIF
        ("clap.heic", UPRIGHT[30:90, 22:66]),
        ("alpha.heic", SMALL),
        ("several.heic", SMALL),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_file_is_upright_and_in_srgb(name: str, shown: NDArray[np.uint8]) -> None:
    opened = open_file(file(name), max_pixels=LIMIT)
    found = opened.decode()
    pixels = as_image(found.image).pixels
    assert pixels[..., :3].shape == shown.shape
    difference = np.abs(pixels[..., :3].astype(int) - shown)
    assert difference.mean() < 1.5
    assert np.quantile(difference, 0.99) <= 8  # chroma is halved at the edges of the red part
    info = found.info
    assert info == opened.info == open_file(file(name), max_pixels=LIMIT).info
    assert (info.format, info.height, info.width) == (ImageFormat.HEIF, *shown.shape[:2])
    assert (info.orientation, info.frames, pixels.shape[2]) == (1, 1, info.most_channels)


def test_alpha_is_kept() -> None:
    alpha = as_image(decode(file("alpha.heic"), max_pixels=LIMIT).image).pixels[..., 3]
    assert alpha[0].max() < 12
    assert alpha[-1].min() > 243


def test_exif_and_the_profile_are_described_and_the_copyright_is_kept() -> None:
    opened = open_file(file("iphone.heic"), max_pixels=LIMIT)
    found = opened.describe(colour=True)
    assert (found.format, found.exif["Make"], found.profile) == ("heif", "A maker", "CICP 12/13")
    assert found.colour
    whole = decode(file("iphone.heic"), max_pixels=LIMIT)
    assert whole.copyright == "somebody"
    assert whole.exif
    assert whole.exif.startswith(b"Exif\0\0MM") or whole.exif.startswith(b"Exif\0\0II")


def test_the_brands_tell_heif_and_avif_stays_avif() -> None:
    def start(*brands: bytes) -> bytes:
        content = brands[0] + bytes(4) + b"".join(brands[1:])
        return struct.pack(">I4s", 8 + len(content), b"ftyp") + content

    for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"):
        assert identify(start(brand)) is ImageFormat.HEIF
    assert identify(start(b"mif1", b"mif1", b"heic")) is ImageFormat.HEIF
    assert identify(start(b"mif1", b"miaf", b"avif")) is ImageFormat.AVIF
    assert identify(start(b"isom", b"isom", b"mp42")) is None


@pytest.mark.parametrize("name", ["iphone.heic", "samsung.heic", "canon.hif", "alpha.heic"])
def test_a_cut_file_is_undecodable_wherever_it_is_cut(name: str) -> None:
    data = file(name)
    for size in [*range(16, len(data), 97), len(data) - 1]:
        with pytest.raises(Undecodable):
            decode(data[:size], max_pixels=LIMIT)


@pytest.mark.parametrize("name", ["iphone.heic", "samsung.heic", "canon.hif"])
def test_zeros_in_place_of_pixels_are_undecodable(name: str) -> None:
    data = bytearray(file(name))
    at = data.index(b"mdat") + 4
    data[at + 200 : at + 300] = bytes(100)
    with pytest.raises(Undecodable):
        decode(bytes(data), max_pixels=LIMIT)


def stating(width: int, height: int, name: str = "samsung.heic") -> bytes:
    data = bytearray(file(name))
    struct.pack_into(">II", data, data.index(b"ispe") + 8, width, height)
    return bytes(data)


def test_the_stated_size_is_checked_before_the_pixels_and_a_lie_is_undecodable() -> None:
    with pytest.raises(TooManyPixels, match="14000 × 14000 pixels, more than the 1,000,000"):
        open_file(stating(14_000, 14_000), max_pixels=LIMIT)
    assert open_file(file("samsung.heic"), max_pixels=88 * 120).info.width == 88
    with pytest.raises(TooManyPixels):
        open_file(file("samsung.heic"), max_pixels=88 * 120 - 1)
    for sides in ((16, 8), (0, 0), (500, 400)):
        with pytest.raises(Undecodable):
            decode(stating(*sides), max_pixels=LIMIT)


def test_memory_follows_chroma_and_depth() -> None:
    assert heif_buffers(file("iphone.heic"), 1000) == 6000
    assert heif_buffers(file("canon.hif"), 1000) == 15_000
    assert heif_buffers(b"", 1000) == 15_000
    assert open_file(file("samsung.heic"), max_pixels=LIMIT).memory > 88 * 120 * 9
