"""What decoding is estimated to take in memory."""

from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image

from models.codec import (
    ImageFormat,
    ImageInfo,
    check_decode_memory,
    decode_memory,
    open_file,
)
from models.domain.errors import TooManyPixels
from models.settings import Settings


def info(format_: ImageFormat, mode: str, side: int = 1000) -> ImageInfo:
    return ImageInfo(format_, side, side, 1, 1, mode, fast_jpeg=False)


@pytest.mark.parametrize(
    "format_", [ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.BMP, ImageFormat.TIFF]
)
def test_these_formats_take_at_least_pillows_image_and_its_pixels(format_: ImageFormat) -> None:
    for mode, channels in (("RGB", 3), ("RGBA", 4)):
        assert decode_memory(info(format_, mode), 500) >= 500 + 1_000_000 * (4 + channels)


def test_a_plain_jpeg_takes_its_file_and_its_pixels_only() -> None:
    assert decode_memory(info(ImageFormat.JPEG, "RGB"), 500, plain_jpeg=True) == 3_000_500


def test_a_plain_jpeg_that_is_turned_takes_its_pixels_twice() -> None:
    turned = replace(info(ImageFormat.JPEG, "RGB"), orientation=6)
    assert decode_memory(turned, 500, plain_jpeg=True) == 6_000_500


@pytest.mark.parametrize(
    ("chroma", "progressive", "bytes_per_pixel"),
    [("4:2:0", True, 3), ("4:2:2", True, 4), ("4:4:4", True, 6), ("4:4:4", False, 0)],
)
def test_a_jpeg_of_several_scans_takes_its_coefficients_beside_its_pixels(
    chroma: str, progressive: bool, bytes_per_pixel: int
) -> None:
    file = BytesIO()
    Image.new("RGB", (640, 480)).save(file, "JPEG", subsampling=chroma, progressive=progressive)
    data = file.getvalue()
    opened = open_file(data, max_pixels=640 * 480)
    expected = decode_memory(opened.info, len(data), coefficients=bytes_per_pixel)
    assert opened.memory == expected
    assert expected >= len(data) + 640 * 480 * (bytes_per_pixel + 3)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("format_", [ImageFormat.PNG, ImageFormat.BMP, ImageFormat.TIFF])
def test_a_column_takes_eight_bytes_more_for_almost_each_row(
    format_: ImageFormat, orientation: int
) -> None:
    row = ImageInfo(format_, 16_000_000, 1, 1, 1, "RGB", fast_jpeg=False)
    sides = (16_000_000, 1) if orientation >= 5 else (1, 16_000_000)
    column = ImageInfo(format_, *sides, orientation, 1, "RGB", fast_jpeg=False)
    assert decode_memory(column, 0) - decode_memory(row, 0) >= 7 * 16_000_000


def test_an_image_whose_decoding_needs_more_than_is_allowed_is_refused_with_both_numbers() -> None:
    large = info(ImageFormat.AVIF, "RGB", 7000)
    needed = decode_memory(large, 0)
    check_decode_memory(large, needed, needed)
    with pytest.raises(TooManyPixels, match=r"443 MiB.*320 allowed"):
        check_decode_memory(large, needed, 320 << 20)


@pytest.mark.parametrize("format_", list(ImageFormat))
def test_24_megapixels_are_decoded_by_default_and_22_of_webp(format_: ImageFormat) -> None:
    width = 5400 if format_ is ImageFormat.WEBP else 6000
    photo = ImageInfo(format_, width, 4000, 1, 1, "RGB", fast_jpeg=False)
    needed = decode_memory(photo, 3_000_000)
    check_decode_memory(photo, needed, Settings().decode_memory)
    assert needed <= 270_000_000


@pytest.mark.parametrize(("mode", "colour"), [("L", 7), ("RGB", (1, 2, 3))])
def test_a_transparent_colour_counts_as_alpha(mode: str, colour: object) -> None:
    sizes = []
    for options in ({}, {"transparency": colour}):
        file = BytesIO()
        Image.new(mode, (40, 30)).save(file, "PNG", **options)
        opened = open_file(file.getvalue(), max_pixels=40 * 30)
        assert opened.info.most_channels == opened.decode().image.channels
        sizes.append(decode_memory(opened.info, 0))
    assert sizes[0] < sizes[1]
