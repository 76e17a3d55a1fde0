"""Kernels at the ends of the ranges of parameters, and with plain and oddly shaped images."""

import numpy as np
import pytest

from tests.unit.workers.kernels.specified import assert_equal, image
from workers.filters.registry import parse_one

pytestmark = pytest.mark.slow

OPERATIONS = ["erode", "dilate", "open", "close", "gradient", "tophat", "blackhat"]


@pytest.mark.parametrize("size", [2, 3, 33, 63, 64, 65, 130, 1000])
def test_squares_of_every_size_are_exact(size: int) -> None:
    random = np.random.default_rng(size)
    images = [image(random, *shape) for shape in [(131, 150, 3), (70, 200, 4), (97, 65, 1)]]
    assert_equal([parse_one("pixelate", {"size": size})] * 3, images)


@pytest.mark.parametrize("shape", ["rect", "cross", "ellipse"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_operation_and_shape_is_exact(op: str, shape: str) -> None:
    random = np.random.default_rng(len(op))
    images = [image(random, 37, 150, channels) for channels in (1, 3, 4)]
    images += [image(random, 1, n, 1) for n in (1, 2, 7, 9)]
    for size, iterations in ((3, 1), (4, 2), (15, 1)):
        chosen = {"op": op, "shape": shape, "size": size, "iterations": iterations}
        assert_equal([parse_one("morphology", chosen)] * len(images), images)


@pytest.mark.parametrize("shape", ["rect", "cross", "ellipse"])
def test_the_largest_neighbourhoods_are_exact(shape: str) -> None:
    random = np.random.default_rng(3)
    images = [image(random, 60, 45, 3), image(random, 9, 300, 4), image(random, 230, 5, 1)]
    for size, iterations in ((201, 1), (64, 3), (200, 5 if shape == "rect" else 2)):
        chosen = {"shape": shape, "size": size, "iterations": iterations}
        assert_equal([parse_one("morphology", chosen)] * 3, images)


@pytest.mark.parametrize("name", ["otsu", "equalize", "autocontrast"])
def test_counts_of_plain_and_two_toned_images_are_exact(name: str) -> None:
    random = np.random.default_rng(5)
    shapes = [(40, 70, channels) for channels in (1, 3, 4)]
    images = [np.full(shape, level, np.uint8) for shape in shapes for level in (0, 1, 128, 255)]
    images += [random.choice(np.array([3, 200], np.uint8), shape) for shape in shapes]
    images += [random.integers(90, 140, shape, np.uint8) for shape in shapes]
    assert_equal([parse_one(name, {})] * len(images), images)


@pytest.mark.parametrize("cutoff", [0, 0.013, 1, 3.7, 25, 49.9])
@pytest.mark.parametrize("preserve_tone", [False, True])
def test_every_cutoff_is_exact(cutoff: float, preserve_tone: bool) -> None:
    random = np.random.default_rng(int(cutoff))
    images = [
        image(random, *size, channels) for size in [(7, 3), (60, 41)] for channels in (1, 3, 4)
    ]
    images += [random.integers(90, 140, (33, 20, 3), np.uint8)]
    chosen = {"cutoff": cutoff, "preserve_tone": preserve_tone}
    assert_equal([parse_one("autocontrast", chosen)] * len(images), images)


@pytest.mark.parametrize("turns", range(4))
def test_turned_images_of_many_blocks_are_exact(turns: int) -> None:
    random = np.random.default_rng(turns)
    shapes = [(64, 128, 3), (65, 200, 4), (130, 64, 1), (112, 80, 3)]
    images = [image(random, *shape) for shape in shapes]
    assert_equal([parse_one("rotate90", {"turns": turns})] * len(images), images)


@pytest.mark.parametrize("method", ["mean", "gaussian"])
@pytest.mark.parametrize("block", [3, 5, 7, 9, 11, 101, 255])
def test_neighbourhoods_of_every_size_are_exact(method: str, block: int) -> None:
    random = np.random.default_rng(block)
    images = [image(random, *shape) for shape in [(40, 70, 1), (33, 19, 3), (20, 65, 4), (1, 1, 3)]]
    chosen = {"method": method, "block": block, "c": -1.5}
    assert_equal([parse_one("adaptive_threshold", chosen)] * 4, images)


@pytest.mark.parametrize("sigma", [0, 0.8, 1.4, 30])
def test_edges_after_any_blur_are_exact(sigma: float) -> None:
    random = np.random.default_rng(2)
    images = [image(random, 50, 90, channels) for channels in (1, 3, 4) for _ in range(3)]
    filters = [parse_one("canny", {"sigma": sigma, "low": low}) for low in (10, 90, 400)]
    assert_equal(filters * 3, images)


def test_an_edge_that_is_weak_but_for_its_end_is_found_whole() -> None:
    grey = np.zeros((90, 90, 1), np.uint8)
    for ring in range(2, 40, 6):
        grey[ring : 90 - ring, ring] = grey[ring, ring : 90 - ring] = 40
        grey[90 - ring, ring : 90 - ring] = grey[ring + 6 : 90 - ring, 90 - ring] = 40
    faint = np.repeat(grey, 3, 2)
    strong = faint.copy()
    strong[2, 84:] = 255
    filters = [parse_one("canny", {"low": 60, "high": 600})] * 2
    assert filters[0].apply(strong).sum() > 255 * 1000 > filters[0].apply(faint).sum()
    assert_equal(filters, [faint, strong])


@pytest.mark.parametrize("sigma", [0, 1, 3])
@pytest.mark.parametrize("high", [30, 150, 700])
def test_edges_through_many_tiles_are_exact(sigma: float, high: int) -> None:
    random = np.random.default_rng(high)
    images = [random.integers(0, 256, shape, np.uint8) for shape in [(70, 530, 1), (100, 259, 3)]]
    assert_equal([parse_one("canny", {"sigma": sigma, "low": 5, "high": high})] * 2, images)


@pytest.mark.parametrize("tiles", [1, 2, 3, 32])
def test_tables_of_any_number_of_tiles_are_exact(tiles: int) -> None:
    random = np.random.default_rng(tiles)
    shapes = [(30, 47, 1), (64, 96, 3), (9, 33, 4), (1, 1, 3)]
    images = [image(random, *shape) for shape in shapes]
    filters = [parse_one("clahe", {"tiles": tiles, "clip_limit": limit}) for limit in (0.1, 40)]
    assert_equal(filters * 2, images)


@pytest.mark.parametrize("border", ["replicate", "reflect", "mirror", "wrap", "constant"])
def test_borders_wider_than_the_image_are_exact(border: str) -> None:
    random = np.random.default_rng(4)
    shapes = [(1, 1, 3), (1, 2, 1), (2, 3, 4), (5, 40, 3), (37, 17, 4), (16, 16, 3)]
    images = [image(random, *shape) for shape in shapes]
    chosen = {"left": 37, "top": 11, "right": 50, "bottom": 16, "border_mode": border}
    assert_equal([parse_one("pad", {**chosen, "background": "40801060"})] * 6, images)


def test_windows_at_any_place_are_exact() -> None:
    random = np.random.default_rng(9)
    for channels in (1, 3, 4):
        images = [image(random, 21, 75, channels) for _ in range(18)]
        places = [{"left": n, "top": n % 4, "width": 57 - n, "height": 17} for n in range(18)]
        assert_equal([parse_one("crop", place) for place in places], images)


def test_all_colours_over_all_others_are_exact() -> None:
    level, alpha = np.mgrid[:256, :256].astype(np.uint8)
    pixels = np.stack([level, 255 - level, level, alpha], -1)
    filters = [parse_one("composite", {"background": c}) for c in ("ffffff", "000000", "5510c3")]
    assert_equal(filters, [pixels] * 3)


@pytest.mark.parametrize("degrees", [-180, -60.1, 0, 0.001, 119.99, 180])
def test_hues_of_very_different_colours_are_exact(degrees: float) -> None:
    some = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)
    colours = np.stack(np.meshgrid(some, some, some), -1).reshape(49, 7, 3)
    assert_equal([parse_one("hue", {"degrees": degrees})], [colours])


@pytest.mark.parametrize("amount", [0, 0.2, 1, 31.7, 128])
def test_grain_of_every_amount_is_exact(amount: float) -> None:
    grey = np.full((170, 400, 1), 128, np.uint8)
    images = [grey, np.repeat(grey[:77], 3, 2), np.repeat(grey[:61], 4, 2)]
    assert_equal([parse_one("noise", {"amount": amount, "seed": 2**53 - 1})] * 3, images)


@pytest.mark.parametrize(("amount", "radius"), [(1, 0), (1, 0.99), (0, 0.5), (0.37, 0.81)])
def test_lights_of_every_distance_are_exact(amount: float, radius: float) -> None:
    images = [np.full(shape, 255, np.uint8) for shape in ((1, 900, 1), (180, 200, 3), (77, 60, 4))]
    assert_equal([parse_one("vignette", {"amount": amount, "radius": radius})] * 3, images)


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("fit", ["fill", "cover", "contain"])
def test_sizes_of_every_ratio_are_exact(method: str, fit: str) -> None:
    random = np.random.default_rng(6)
    shapes = [(37, 131, 3), (64, 50, 4), (200, 9, 1), (1, 1, 4), (97, 83, 4), (30, 40, 3)]
    images = [image(random, *shape) for shape in shapes]
    for size in ((1, 1), (7, 300), (149, 3), (40, 30), (70, 131)):
        chosen = {"width": size[0], "height": size[1], "fit": fit, "method": method}
        assert_equal([parse_one("resize", chosen)] * 6, images)


@pytest.mark.parametrize("diameter", [1, 2, 9, 33])
@pytest.mark.parametrize(("sigma_color", "sigma_space"), [(1, 100), (255, 0.1), (60, 4)])
def test_bilateral_windows_of_every_size_are_within_their_tolerance(
    diameter: int, sigma_color: float, sigma_space: float
) -> None:
    random = np.random.default_rng(diameter)
    images = [image(random, *shape) for shape in [(90, 150, 3), (41, 70, 1), (9, 33, 4), (1, 1, 3)]]
    chosen = {"diameter": diameter, "sigma_color": sigma_color, "sigma_space": sigma_space}
    assert_equal([parse_one("bilateral", chosen)] * 4, images)


@pytest.mark.parametrize("border", ["replicate", "reflect", "mirror", "wrap", "constant"])
@pytest.mark.parametrize("size", [(1, 1), (1, 31), (31, 2), (5, 5), (31, 31)])
def test_kernels_of_every_shape_are_exact(border: str, size: tuple[int, int]) -> None:
    random = np.random.default_rng(size[0] + size[1])
    images = [image(random, *shape) for shape in [(37, 131, 3), (20, 33, 1), (5, 7, 4), (1, 1, 3)]]
    kernels = [1000 * random.standard_normal(size), random.standard_normal(size).round(1)]
    for kernel in kernels:
        chosen = {"kernel": kernel.clip(-1000, 1000).tolist(), "border_mode": border, "bias": -3}
        operation = {**chosen, "divisor": float(np.abs(kernel).sum()) + 0.01}
        assert_equal([parse_one("convolve", operation)] * 4, images)


def test_sums_far_beyond_a_byte_are_exact() -> None:
    white = [np.full((40, 70, channels), 255, np.uint8) for channels in (1, 3, 4)]
    for weight in (1000.0, -1000.0):
        chosen = {"kernel": [[weight] * 31] * 31, "divisor": 0.01}
        assert_equal([parse_one("convolve", chosen)] * 3, white)


@pytest.mark.parametrize("angle", [-180, -45, 0, 12.5, 90])
@pytest.mark.parametrize("length", [3, 4, 31, 255])
def test_motions_of_every_length_are_exact(angle: float, length: int) -> None:
    random = np.random.default_rng(length)
    images = [image(random, *shape) for shape in [(37, 131, 3), (20, 33, 1), (31, 40, 4)]]
    images.append(np.full((20, 140, 4), 255, np.uint8))
    assert_equal([parse_one("motion_blur", {"length": length, "angle": angle})] * 4, images)


@pytest.mark.parametrize("sigmas", [(0.1, 100), (1, 1.6), (30, 2.2)])
def test_differences_of_any_gaussians_are_exact(sigmas: tuple[float, float]) -> None:
    random = np.random.default_rng(5)
    images = [image(random, *shape) for shape in [(70, 131, 3), (45, 66, 4), (37, 5, 1), (1, 1, 3)]]
    chosen = {"sigma1": sigmas[0], "sigma2": sigmas[1], "scale": 7.3}
    assert_equal([parse_one("dog", chosen)] * 4, images)


@pytest.mark.parametrize("percentile", [0, 3, 50, 99.9, 100])
@pytest.mark.parametrize("size", [3, 5, 9, 41, 101])
def test_ranks_of_every_size_are_exact(size: int, percentile: float) -> None:
    random = np.random.default_rng(size)
    images = [image(random, *shape) for shape in [(20, 37, 3), (9, 50, 1), (5, 6, 4)]]
    assert_equal([parse_one("rank", {"size": size, "percentile": percentile})] * 3, images)


@pytest.mark.parametrize("percentile", [0, 30, 50, 100])
@pytest.mark.parametrize("size", [9, 15, 35, 67])
def test_ranks_of_levels_far_apart_are_exact(size: int, percentile: float) -> None:
    steps = np.repeat(np.array([0, 1, 127, 128, 254, 255, 126, 64], np.uint8), 24)
    slope = np.linspace(0, 255, 150).astype(np.uint8)
    images = [np.repeat(line[None, :, None], 40, 0) for line in (steps, slope, slope[::-1])]
    images += [np.ascontiguousarray(i.transpose(1, 0, 2)) for i in images]
    chosen = {"size": size, "percentile": percentile}
    assert_equal([parse_one("rank", chosen)] * len(images), images)


@pytest.mark.parametrize("eps", [1e-6, 0.01, 1])
@pytest.mark.parametrize("radius", [1, 2, 37, 100])
def test_guides_of_every_radius_are_exact(radius: int, eps: float) -> None:
    random = np.random.default_rng(radius)
    images = [
        image(random, *shape) for shape in [(20, 37, 3), (9, 50, 1), (5, 6, 4), (123, 645, 1)]
    ]
    assert_equal([parse_one("guided", {"radius": radius, "eps": eps})] * 4, images)


@pytest.mark.parametrize("radius", [1, 3, 100])
@pytest.mark.parametrize("colours", [((0, 0, 255), (0, 51, 0)), ((255, 255, 0), (255, 204, 255))])
def test_the_steepest_guides_are_exact(radius: int, colours: tuple[tuple[int, ...], ...]) -> None:
    random = np.random.default_rng(0)
    pixels = np.array(colours, np.uint8)[random.integers(0, 2, (30, 41))]
    assert_equal([parse_one("guided", {"radius": radius, "eps": 1e-6})], [pixels])


@pytest.mark.parametrize("h", [1, 13.7, 100])
@pytest.mark.parametrize(("patch", "search"), [(1, 3), (1, 21), (15, 3), (15, 21), (3, 9)])
def test_likenesses_of_every_patch_and_search_are_exact(h: float, patch: int, search: int) -> None:
    random = np.random.default_rng(patch)
    images = [image(random, *shape) for shape in [(33, 66, 3), (9, 70, 1), (5, 6, 4), (1, 1, 3)]]
    images += [np.full((9, 4, 3), 255, np.uint8)]
    assert_equal([parse_one("nl_means", {"h": h, "patch": patch, "search": search})] * 5, images)
