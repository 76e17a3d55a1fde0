"""Small correlations and gradients: every border, shape and length that occurs."""

import numpy as np
import pytest

from tests.unit.workers.kernels.specified import assert_equal, image
from workers.filters.registry import parse_one
from workers.filters.sharpen import SMALL_INT_PASSES


@pytest.mark.parametrize("border", ["replicate", "reflect", "mirror", "wrap", "constant"])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 3), (1, 4), (5, 2), (5, 5)])
def test_small_kernels_of_whole_weights_are_exact(border: str, size: tuple[int, int]) -> None:
    random = np.random.default_rng(size[0] + size[1])
    shapes = [(37, 300, 3), (70, 272, 4), (100, 400, 1), (3, 2, 4), (1, 1, 3)]
    images = [image(random, *shape) for shape in shapes]
    for divisor in (1, 16, 7):
        kernel = random.integers(-9, 10, size).tolist()
        chosen = {"kernel": kernel, "border_mode": border, "divisor": divisor, "bias": 30.5}
        assert_equal([parse_one("convolve", chosen)] * 5, images)


def test_whole_weights_at_the_ends_of_16_bits_are_exact() -> None:
    ends = np.array([0, 1, 254, 255], np.uint8)
    images = [np.random.default_rng(c).choice(ends, (40, 300, c)) for c in (1, 3, 4)]
    images += [np.full((35, 140, c), level, np.uint8) for c in (1, 3, 4) for level in (0, 255)]
    rising, falling = (
        [[127, 0, 0], [0, -63, 1], [0, -65, 0]],
        [[0, -64, 64], [-63, 63, 0], [0, 0, 1]],
    )
    for kernel in (rising, falling):
        for divisor in (1, 2, 16, 128):
            operation = parse_one("convolve", {"kernel": kernel, "divisor": divisor})
            assert operation.device_passes == SMALL_INT_PASSES
            assert_equal([operation] * len(images), images)


def test_weights_that_16_bits_cannot_hold_take_another_kernel() -> None:
    for kernel in ([[129, 0, 0]], [[0, 0, -129]], [[1], [1], [1], [1]]):
        assert parse_one("convolve", {"kernel": kernel}).device_passes != SMALL_INT_PASSES
    assert (
        parse_one("convolve", {"kernel": [[1]], "divisor": 256}).device_passes != SMALL_INT_PASSES
    )


@pytest.mark.parametrize(
    "kernel", ["blur", "contour", "detail", "edge_enhance", "emboss", "smooth", "smooth_more"]
)
def test_presets_of_noise_are_exact(kernel: str) -> None:
    random = np.random.default_rng(8)
    noise = [random.integers(0, 256, (90, 300, channels), np.uint8) for channels in (1, 3, 4)]
    assert_equal([parse_one("preset", {"kernel": kernel})] * 3, noise)


@pytest.mark.parametrize("scale", [0, 0.003, 0.25, 1, 99.9])
def test_gradients_of_every_operator_and_scale_are_exact(scale: float) -> None:
    random = np.random.default_rng(8)
    images = [image(random, 45, 90, channels) for channels in (1, 3, 4)]
    for name in ("scharr", "prewitt"):
        for axis in ("x", "y", "mag"):
            assert_equal([parse_one(name, {"axis": axis, "scale": scale})] * 3, images)
    for ksize in (1, 3, 5, 7):
        assert_equal([parse_one("laplacian", {"ksize": ksize, "scale": scale})] * 3, images)


def test_tones_of_the_longest_gradients_are_exact() -> None:
    ends = np.array([0, 1, 2, 253, 254, 255], np.uint8)
    pixels = np.random.default_rng(3).choice(ends, (150, 200, 1))
    pixels[40:, 60:] = np.where(pixels[40:, 60:] < 128, 0, 255)
    for name, longest in (("sobel", 1442), ("scharr", 5770), ("prewitt", 1082)):
        assert_equal([parse_one(name, {"scale": 255 / longest})], [pixels])
