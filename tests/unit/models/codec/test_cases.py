"""The pictures of ../shared/data/cases, with the right values of its README."""

import numpy as np
import pytest
from numpy.typing import NDArray

from models.codec import decode
from models.domain.errors import Undecodable
from tests.pictures import as_image
from tests.shared import SHARED

CASES = SHARED / "cases"
LIMIT = 1_000_000
BLACK_TO_WHITE: list[tuple[int, ...]] = [(0, 0, 0), (64, 64, 64), (128, 128, 128), (255, 255, 255)]
COLUMNS: dict[str, list[tuple[int, ...]]] = {
    "png_cicp_display_p3.png": [(215, 93, 31), (0, 163, 82), (85, 111, 206), (128, 128, 128)],
    "tiff_16_white_is_zero_le.tif": [(255,) * 3, (191,) * 3, (127,) * 3, (0,) * 3],
    "tiff_grey_alpha_white_is_zero.tif": [(155, 155, 155, 128)],
    "tiff_12_bit_le.tif": BLACK_TO_WHITE,
    "tiff_palette_8_bit_colormap.tif": [(255, 0, 0), (0, 255, 0)],
    "tiff_uint32_le.tif": [(0,) * 3, (255,) * 3, (255,) * 3, (255,) * 3],
    "bmp_v5_alpha_all_zero.bmp": [(200, 100, 50, 255), (30, 20, 10, 255)],
    "png_text_crc_wrong.png": [(200, 100, 50)],
    "avif_clap_top_left_32x32.avif": [(255, 0, 0)],
}
SIZES = {
    "avif_xmp_orientation_only.avif": (64, 32),
    "jpeg_xmp_orientation_only.jpg": (64, 32),
    "avif_clap_top_left_32x32.avif": (32, 32),
    "jpeg_no_eoi_phone_trailer.jpg": (64, 64),
}


def read(name: str) -> NDArray[np.int_]:
    """Return pixels in three or four channels, as signed numbers."""
    path = CASES / name
    if not path.is_file():
        pytest.skip("the files of ../shared/data/cases are not here")
    pixels = as_image(decode(path.read_bytes(), max_pixels=LIMIT).image).pixels.astype(int)
    return pixels.repeat(3, axis=2) if pixels.shape[2] == 1 else pixels


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_right_colours(name: str) -> None:
    pixels, right = read(name), COLUMNS[name]
    tolerance = 4 if name.endswith("avif") else 2
    for found, wanted in zip(np.array_split(pixels, len(right), axis=1), right, strict=True):
        assert np.abs(found - wanted).max() <= tolerance


@pytest.mark.parametrize("name", SIZES)
def test_images_have_the_right_size(name: str) -> None:
    assert read(name).shape[1::-1] == SIZES[name]


def test_an_avif_has_the_right_colours() -> None:
    pixels = read("avif_nclx_bt2020_srgb_curve.avif")[16::32, 16::32].reshape(4, 3)
    right = [(241, 76, 29), (0, 168, 79), (53, 111, 208), (128, 128, 128)]
    assert np.abs(pixels - right).max() <= 4


def test_the_rest_of_a_gif_is_transparent() -> None:
    pixels = read("gif_first_frame_partial.gif")
    assert pixels[1, 1].tolist() == [0, 255, 0, 255]
    assert (pixels[[0, -1], :, 3] == 0).all()


def test_the_alpha_of_a_png_of_16_bits() -> None:
    assert read("png_rgb16_trns_low_byte.png")[0, :, 3].tolist() == [0, 255, 255]


def test_a_jpeg_without_its_end_has_the_pixels_of_the_whole() -> None:
    pixels = read("jpeg_no_eoi_phone_trailer.jpg")
    closed = (CASES / "jpeg_no_eoi_phone_trailer.jpg").read_bytes()
    assert not closed.endswith(b"\xff\xd9")
    assert pixels.std() > 10


def test_a_cut_jpeg_is_refused() -> None:
    with pytest.raises(Undecodable):
        read("jpeg_half_then_eoi.jpg")


def test_a_copyright_in_iptc_is_kept() -> None:
    read("copyright_iptc.jpg")
    found = decode((CASES / "copyright_iptc.jpg").read_bytes(), max_pixels=LIMIT)
    assert found.copyright == "(c) 2024 Example Agency"
