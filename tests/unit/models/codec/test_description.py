"""Descriptions of files: the values that they hold, and the parts of a file that are not read."""

from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from models import codec
from models.codec import Description
from models.domain.errors import Undecodable
from tests.pictures import drawing, encoded
from tests.pictures import exif as orientation
from tests.unit.models.codec.test_colour import linear_grey
from tests.unit.models.codec.test_tiff import tiff


def described(file: bytes, *, colour: bool = True) -> Description:
    return codec.open_file(file, max_pixels=10**8).describe(colour=colour)


def surfaces(mode: str, large: Any, small: Any, **info: object) -> bytes:
    """Return a PNG of two colours; the second covers three tenths on the left."""
    image = Image.new(mode, (300, 200), large)
    image.paste(small, (0, 0, 90, 200))
    if mode == "P":
        image.putpalette([200] * 3 + [10] * 3)
    return encoded(image, "PNG", **info)


@pytest.mark.parametrize(
    ("file", "colour"),
    [
        (surfaces("RGB", (10, 200, 30), (255, 0, 0)), "#0ac81e"),
        (surfaces("P", 0, 1, transparency=0), "#0a0a0a"),  # transparent colours do not count
        # sRGB's curve: 55 / 255 of the light is level 128
        (surfaces("LA", (55, 255), (0, 255), icc_profile=linear_grey()), "#808080"),
        (encoded(Image.new("F", (9, 9), 0.5), "TIFF"), "#808080"),
        (tiff(np.full((9, 9, 1), 1023), 12, 0), "#bfbfbf"),  # white is 0
    ],
)
def test_the_dominant_colour_is_that_of_the_largest_surface(file: bytes, colour: str) -> None:
    assert described(file).colour == colour


def test_without_colour_no_pixel_is_decoded() -> None:
    file = encoded(drawing(), "PNG")
    broken = file[: len(file) // 2]
    with pytest.raises(Undecodable):
        described(broken)
    assert described(broken, colour=False).colour is None


@pytest.mark.parametrize(
    ("picture", "format", "phash", "blurhash", "colours"),
    [
        (drawing(), "PNG", "c99a309d38cc33cf", "LsJRd0lwEARpP9sow0wINMrcs8#,", 5),
        (drawing(1100, 1000, 4), "BMP", "d48162291b7d6b79", "LSG^5ht8u^p9d0ebmsZ=vpjYxBnA", 5),
        (drawing(64, 40, 1, "L"), "PNG", "be792f7ad005c684", "L5FY$2D%~q%MM{-;_3?bRj00?bRj", 5),
        (drawing(64, 48, 2, "RGBA"), "PNG", "d215ad4f1e0ef8e0", None, 5),
        (Image.new("RGB", (1, 1), (9, 8, 7)), "PNG", "8" + "0" * 15, "L012]6" + "~W" * 11, 1),
        (Image.new("RGBA", (1, 1)), "PNG", "0" * 16, "L~TSUA" + "~q" * 11, 0),
    ],
)
def test_hashes_are_those_of_the_packages_imagehash_and_blurhash(
    picture: Image.Image, format: str, phash: str, blurhash: str | None, colours: int
) -> None:
    opened = codec.open_file(encoded(picture, format), max_pixels=10**8)
    found = opened.describe(appearance=True)
    assert found.phash == phash
    assert blurhash in (None, found.blurhash)
    assert found.colours is not None
    assert len(found.colours) == colours
    assert sum(each.share for each in found.colours) == pytest.approx(min(1, colours), abs=3e-4)


def test_a_turned_photo_has_the_hash_of_the_upright_photo() -> None:
    upright, turned = drawing(64, 48), drawing(64, 48).transpose(Image.Transpose.ROTATE_90)
    files = encoded(upright, "PNG"), encoded(turned, "PNG", exif=orientation(x274=6))
    first, last = (codec.open_file(f, max_pixels=10**4).describe(appearance=True) for f in files)
    assert (first.phash, first.blurhash) == (last.phash, last.blurhash)


def test_values_of_exif_that_json_cannot_carry_are_left_out() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Software] = "a" * 500
    exif[ExifTags.Base.Artist] = "\x00\x01"
    photo = exif.get_ifd(ExifTags.IFD.Exif)
    photo[ExifTags.Base.FNumber] = (1, 0)
    photo[ExifTags.Base.UserComment] = b"private"
    shown = described(encoded(drawing(), exif=exif.tobytes())).exif
    assert shown == {"Software": "a" * 200}


def test_a_broken_profile_and_broken_exif_count_as_absent() -> None:
    broken = b"Exif\0\0II*\0\xff\xff\xff\xff"
    found = described(encoded(drawing(), icc_profile=b"no profile", exif=broken))
    assert (found.profile, found.exif) == (None, {})
