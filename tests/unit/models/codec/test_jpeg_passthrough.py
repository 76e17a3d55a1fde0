"""Which files are left encoded, and that they are described as decoding would describe them."""

from typing import Any

import pytest
from PIL import ImageCms

from models.codec import decode, encoded, open_plain
from models.domain.errors import TooManyPixels
from models.domain.image import Jpeg
from tests.pictures import as_image, drawing, exif, png
from tests.pictures import encoded as file_of
from tests.shared import ODD, PHOTOS

LIMIT = 10_000_000
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def test_a_baseline_jpeg_is_left_as_it_is_without_what_follows_and_described_as_by_decoding() -> (
    None
):
    for data in [
        file_of(drawing(40, 30)),
        file_of(drawing(40, 30), subsampling=0),
        file_of(drawing(40, 30, mode="L")),
        file_of(drawing(40, 30), exif=exif(x274=6, x33432="us")),
        file_of(drawing(40, 30), comment=b"hello"),
        file_of(drawing(40, 30), icc_profile=SRGB),
    ]:
        behind = data + b"a phone's video"
        found, decoded = encoded(behind, max_pixels=LIMIT), decode(data, max_pixels=LIMIT)
        assert found is not None
        assert isinstance(found.image, Jpeg)
        assert (found.info, found.copyright) == (decoded.info, decoded.copyright)
        assert found.image.data.tobytes() == data
        assert (found.image.height, found.image.width) == as_image(decoded.image).pixels.shape[:2]


def test_what_no_engine_takes_is_left_to_decoding() -> None:
    for data in (
        png(),
        file_of(drawing(), progressive=True),
        file_of(drawing(40, 30), icc_profile=swapped_srgb()),
        file_of(drawing(40, 30), icc_profile=SRGB.replace(b"cprt", b"A2B0")),
        b"",
        b"nothing",
    ):
        assert encoded(data, max_pixels=LIMIT) is None


def swapped_srgb() -> bytes:
    """Return sRGB with red and blue exchanged: a valid profile of quite other colours."""
    profile = bytearray(SRGB)
    red, blue = profile.index(b"rXYZ"), profile.index(b"bXYZ")
    profile[red : red + 4], profile[blue : blue + 4] = b"bXYZ", b"rXYZ"
    return bytes(profile)


def test_too_many_pixels_are_refused_as_by_decoding() -> None:
    with pytest.raises(TooManyPixels):
        encoded(file_of(drawing(40, 30)), max_pixels=1199)


@pytest.mark.skipif(not PHOTOS.exists(), reason=f"{PHOTOS} is not there")
def test_photos_and_odd_files_are_described_as_by_decoding() -> None:
    for path in [*sorted(PHOTOS.iterdir())[:60], *sorted(ODD.glob("*.jp*g"))]:
        data = path.read_bytes()
        found = encoded(data, max_pixels=LIMIT)
        if found is not None:
            assert found.info == decode(data, max_pixels=LIMIT).info, path


def test_restart_markers_are_a_doubt_that_libjpeg_settles() -> None:
    for name, count in (("restart_marker_blocks", 2), ("restart_marker_rows", 1)):
        options: dict[str, Any] = {name: count}
        data = file_of(drawing(80, 60), **options)
        assert encoded(data, max_pixels=LIMIT) is None
        assert open_plain(data, max_pixels=LIMIT) is not None  # a thread decodes it, exactly
