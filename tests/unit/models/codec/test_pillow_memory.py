"""Rows of Pillow's pictures are released as they are converted."""

from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from models.codec import ImageFormat, encode, pillow_memory
from models.codec.pillow_memory import ReleasedRows, in_one_block
from models.domain.image import Image as Picture

WIDTH, HEIGHT = 1024, 64  # a row of a picture in colour is one page


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow_memory, "LARGE", WIDTH * HEIGHT)


def picture(mode: str, height: int = HEIGHT) -> Image.Image:
    with in_one_block(WIDTH * height):
        return Image.new(mode, (WIDTH, height), (200,) * len(Image.new(mode, (1, 1)).getbands()))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK", "LA"])
def test_released_rows_have_no_memory_and_the_others_keep_their_pixels(mode: str) -> None:
    image = picture(mode)
    ReleasedRows(image).release(40 * WIDTH)
    rows = np.asarray(image)
    assert not rows[1:39].any()
    assert (rows[40:] == 200).all()


@pytest.mark.parametrize(
    "image", [picture("RGB", HEIGHT - 1), Image.new("L", (WIDTH, HEIGHT), 200)]
)
def test_small_pictures_and_those_of_one_byte_a_pixel_are_left_alone(image: Image.Image) -> None:
    ReleasedRows(image).release(40 * WIDTH)
    assert (np.asarray(image) == 200).all()


def test_a_picture_in_several_blocks_is_left_alone() -> None:
    core = cast(Any, Image).core
    usual = core.get_block_size()
    core.set_block_size(1 << 16)
    try:
        image = Image.new("RGB", (WIDTH, HEIGHT), (200, 200, 200))
    finally:
        core.set_block_size(usual)
    ReleasedRows(image).release(40 * WIDTH)
    assert (np.asarray(image) == 200).all()


@pytest.mark.parametrize("stripe", [5 * WIDTH, WIDTH // 3])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("format_", [ImageFormat.PNG, ImageFormat.WEBP])
def test_rows_that_an_encoder_has_copied_are_given_back(
    format_: ImageFormat, channels: int, stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pillow_memory, "_STRIPE", stripe)
    pixels = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, channels), np.uint8)
    monkeypatch.setattr(pillow_memory, "LARGE", WIDTH * HEIGHT + 1)
    whole = encode(Picture(pixels.copy()), format_)
    monkeypatch.setattr(pillow_memory, "LARGE", 1)
    assert encode(Picture(pixels), format_, taken=lambda rows: rows.fill(0)) == whole
    assert not pixels.any()


def test_pictures_have_their_usual_memory_afterwards() -> None:
    picture("RGB")
    assert not cast(Any, Image).core.get_use_block_allocator()
