"""Alpha is flattened in stripes: the same bytes as the whole, and little memory beside them."""

import numpy as np
import pytest
from PIL import Image as PillowImage

from models.codec import Encoding, ImageFormat, encode, flatten
from models.codec.encoder import STRIPE
from models.domain.image import Image, Pixels

BACKGROUND = (12, 200, 77)


def noise(height: int, width: int) -> Image:
    rng = np.random.default_rng(height)
    return Image(rng.integers(0, 256, (height, width, 4), np.uint8))


def whole(image: Image, background: tuple[int, int, int]) -> Pixels:
    stored = PillowImage.fromarray(image.pixels)
    behind = PillowImage.new("RGBA", stored.size, (*background, 255))
    behind.alpha_composite(stored)
    return np.asarray(behind.convert("RGB"))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (23, 37), (7, 11)])
@pytest.mark.parametrize("stripe", [1, 11, 64, STRIPE])
def test_stripes_give_the_bytes_of_the_whole(
    size: tuple[int, int], stripe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.codec.encoder.STRIPE", stripe)
    image = noise(*size)
    assert np.array_equal(flatten(image, BACKGROUND).pixels, whole(image, BACKGROUND))


@pytest.mark.parametrize("size", [(1, 2 * STRIPE + 5), (2 * STRIPE + 5, 1), (1500, 1500)])
def test_pillow_gets_one_stripe_at_a_time_however_long_a_row_is(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures: list[int] = []
    fromarray = PillowImage.fromarray

    def noted(pixels: Pixels) -> PillowImage.Image:
        pictures.append(pixels.shape[0] * pixels.shape[1])
        return fromarray(pixels)

    monkeypatch.setattr(PillowImage, "fromarray", noted)
    image = Image(np.zeros((*size, 4), np.uint8))
    assert (flatten(image).pixels == 255).all()
    assert max(pictures) <= STRIPE
    assert sum(pictures) == image.n_pixels


def test_a_jpeg_gives_back_the_pixels_that_are_flattened() -> None:
    taken: list[int] = []
    image = noise(1200, 1200)
    encode(image, ImageFormat.JPEG, Encoding(), taken=lambda pixels: taken.append(len(pixels)))
    assert taken == [STRIPE, image.n_pixels - STRIPE]
