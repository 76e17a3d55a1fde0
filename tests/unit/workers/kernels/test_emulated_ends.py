"""Kernels at the ends of the ranges of parameters, and with plain and oddly shaped images."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from models.domain.image import Pixels
from tests.unit.workers.kernels.specified import assert_equal, image
from workers.filters.registry import parse_one
from workers.filters.sharpen import SMALL_INT_PASSES

pytestmark = pytest.mark.slow

OPERATIONS = ["erode", "dilate", "open", "close", "gradient", "tophat", "blackhat"]
BORDERS = ["replicate", "reflect", "mirror", "wrap", "constant"]
SHAPES = [(37, 131, 3), (33, 65, 1), (1, 200, 3), (41, 64, 4), (9, 2, 3), (1, 1, 4)]
TILES = [(130, 70, 3), (65, 129, 4), (67, 131, 1), (3, 200, 3), (66, 2, 3)]
LARGE = [(60, 45, 3), (9, 300, 4), (230, 5, 1)]

Images = Sequence[Pixels]
Chosen = dict[str, Any]


def drawn(*shapes: tuple[int, int, int]) -> Callable[[], Images]:
    """Return a function that draws images of these shapes, the same ones at each call."""
    return lambda: [image(np.random.default_rng(n), *shape) for n, shape in enumerate(shapes)]


def every(**lists: Iterable[Any]) -> Iterator[Chosen]:
    """Yield all combinations of the values of parameters."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def plain() -> Images:
    """Return images of one level, of two levels, and of few levels."""
    random = np.random.default_rng(5)
    shapes = [(40, 70, channels) for channels in (1, 3, 4)]
    images = [np.full(shape, level, np.uint8) for shape in shapes for level in (0, 1, 128, 255)]
    images += [random.choice(np.array([3, 200], np.uint8), shape) for shape in shapes]
    return images + [random.integers(90, 140, shape, np.uint8) for shape in shapes]


def colours() -> Images:
    """Return all colours of some levels, and all levels under every alpha."""
    some = np.array([0, 1, 2, 127, 128, 254, 255], np.uint8)
    level, alpha = np.mgrid[:256, :256].astype(np.uint8)
    return [
        np.stack(np.meshgrid(some, some, some), -1).reshape(49, 7, 3),
        np.stack([level, 255 - level, level, alpha], -1),
    ]


def steps() -> Images:
    """Return levels that are far apart, and slopes, in rows and in columns."""
    far = np.repeat(np.array([0, 1, 127, 128, 254, 255, 126, 64], np.uint8), 24)
    slope = np.linspace(0, 255, 150).astype(np.uint8)
    lines = [np.repeat(line[None, :, None], 40, 0) for line in (far, slope, slope[::-1])]
    return lines + [np.ascontiguousarray(line.transpose(1, 0, 2)) for line in lines]


def contrasts() -> Images:
    """Return noise of levels at both ends, part of it of two levels, and pairs of colours."""
    random = np.random.default_rng(3)
    ends = np.array([0, 1, 2, 253, 254, 255], np.uint8)
    noise = random.choice(ends, (150, 200, 1))
    noise[40:, 60:] = np.where(noise[40:, 60:] < 128, 0, 255)
    pairs = (((0, 0, 255), (0, 51, 0)), ((255, 255, 0), (255, 204, 255)))
    places = random.integers(0, 2, (30, 41))
    return [noise, *(np.array(pair, np.uint8)[places] for pair in pairs)]


def kernels() -> Iterator[Chosen]:
    """Yield kernels of whole and of broken weights of all shapes, with every border."""
    random = np.random.default_rng(4)
    for size, border in itertools.product(
        [(1, 1), (2, 3), (3, 3), (5, 5), (1, 31), (31, 2)], BORDERS
    ):
        whole, broken = random.integers(-9, 10, size), 1000 * random.standard_normal(size)
        for divisor in (1, 16, 7):
            yield {"kernel": whole.tolist(), "border_mode": border, "divisor": divisor}
        chosen = {"kernel": broken.clip(-1000, 1000).tolist(), "border_mode": border, "bias": -3}
        yield {**chosen, "divisor": float(np.abs(broken).sum()) + 0.01}
    yield from ({"kernel": [[weight] * 31] * 31, "divisor": 0.01} for weight in (1000.0, -1000.0))


SCALES = [0, 0.003, 0.25, 1, 99.9]
METHODS = ["nearest", "bilinear", "bicubic", "lanczos"]
PRESETS = ["blur", "contour", "detail", "edge_enhance", "emboss", "smooth", "smooth_more"]
RESIZED = [(1, 1), (7, 300), (149, 3), (40, 30), (70, 131)]

OF_SHAPES: dict[str, Iterable[Chosen]] = {
    "autocontrast": every(cutoff=[0, 0.013, 1, 3.7, 25, 49.9], preserve_tone=[False, True]),
    "adaptive_threshold": every(
        method=["mean", "gaussian"], block=[3, 5, 7, 9, 11, 101, 255], c=[-1.5]
    ),
    "clahe": every(tiles=[1, 2, 3, 32], clip_limit=[0.1, 40]),
    "resize": (
        {**each, "width": width, "height": height}
        for each in every(fit=["fill", "cover", "contain"], method=METHODS)
        for width, height in RESIZED
    ),
    "bilateral": every(diameter=[1, 2, 9, 33], sigma_color=[1, 60, 255], sigma_space=[0.1, 4, 100]),
    "preset": every(kernel=PRESETS),
    "scharr": every(axis=["x", "y", "mag"], scale=SCALES),
    "prewitt": every(axis=["x", "y", "mag"], scale=SCALES),
    "laplacian": every(ksize=[1, 3, 5, 7], scale=SCALES),
    "dog": every(sigma1=[0.1, 1, 30], sigma2=[1.6, 2.2, 100], scale=[7.3]),
    "unsharp_mask": every(sigma=[0.3, 2, 4], amount=[0.7, 10], threshold=[0, 9, 255]),
}
"""Filters that take images of SHAPES."""

CASES: list[tuple[str, Callable[[], Images], Iterable[Chosen]]] = [
    *((name, drawn(*SHAPES), chosen) for name, chosen in OF_SHAPES.items()),
    ("pixelate", drawn(*TILES), every(size=[2, 3, 33, 63, 64, 65, 130, 1000])),
    (
        "morphology",
        drawn((37, 150, 1), (37, 150, 4), *((1, n, 1) for n in (1, 2, 7, 9))),
        every(
            op=OPERATIONS, shape=["rect", "cross", "ellipse"], size=[3, 4, 15], iterations=[1, 2]
        ),
    ),
    (
        "morphology",
        drawn(*LARGE),
        every(shape=["rect", "cross", "ellipse"], size=[64, 201], iterations=[1, 2]),
    ),
    (
        "morphology",
        drawn(*TILES),
        every(op=["erode", "close", "gradient"], size=[3, 5, 8, 17, 25, 26], iterations=[1, 8]),
    ),
    *((name, plain, [{}]) for name in ("otsu", "equalize", "autocontrast")),
    ("rotate90", drawn((64, 128, 3), (65, 200, 4), (130, 64, 1)), every(turns=range(4))),
    (
        "rotate",
        drawn((64, 20, 3), (65, 65, 4), (13, 64, 4), (1, 5, 1)),
        every(degrees=[-270, 90, 180, 0.7, 45], expand=[True, False], background=["ff880080"]),
    ),
    ("round_corners", drawn(*TILES), every(radius=[1, 2, 31, 32_768])),
    ("canny", drawn((50, 90, 1), (50, 90, 4)), every(sigma=[0, 0.8, 1.4, 30], low=[10, 90, 400])),
    (
        "canny",
        lambda: [np.random.default_rng(2).integers(0, 256, (70, 530, 1), np.uint8)],
        every(sigma=[0, 1, 3], low=[5], high=[30, 150, 700]),
    ),
    (
        "pad",
        drawn((1, 1, 3), (1, 2, 1), (2, 3, 4), (5, 40, 3), (37, 17, 4), (16, 16, 3)),
        every(
            left=[37], top=[11], right=[50], bottom=[16], border_mode=BORDERS, background=["408010"]
        ),
    ),
    (
        "crop",
        drawn((21, 75, 1), (21, 75, 3), (21, 75, 4)),
        ({"left": n, "top": n % 4, "width": 57 - n, "height": 17} for n in range(18)),
    ),
    ("composite", colours, every(background=["ffffff", "000000", "5510c3"])),
    ("hue", colours, every(degrees=[-180, -60.1, 0, 0.001, 119.99, 180])),
    (
        "noise",
        lambda: [np.full(shape, 128, np.uint8) for shape in ((170, 400, 1), (77, 400, 3))],
        every(amount=[0, 0.2, 1, 31.7, 128], seed=[2**53 - 1]),
    ),
    (
        "vignette",
        lambda: [np.full(s, 255, np.uint8) for s in ((1, 900, 1), (180, 200, 3), (77, 60, 4))],
        every(amount=[0, 0.37, 1], radius=[0, 0.81, 0.99]),
    ),
    ("convolve", drawn((37, 300, 3), (70, 272, 4), (20, 33, 1), (3, 2, 4), (1, 1, 3)), kernels()),
    *(
        (name, lambda: contrasts()[:1], [{"scale": 255 / white}])
        for name, white in (("sobel", 1442), ("scharr", 5770), ("scharr", 2000), ("prewitt", 1082))
    ),
    (
        "motion_blur",
        drawn((37, 131, 3), (20, 33, 1), (31, 40, 4)),
        every(length=[3, 4, 31, 255], angle=[-180, -45, 0, 12.5, 90]),
    ),
    ("median", drawn((20, 37, 3), (9, 50, 1)), every(size=range(3, 102, 2))),
    (
        "rank",
        drawn((20, 37, 3), (9, 50, 1), (5, 6, 4)),
        every(size=[3, 5, 9, 41, 101], percentile=[0, 3, 50, 99.9, 100]),
    ),
    ("rank", steps, every(size=[9, 15, 35, 67], percentile=[0, 30, 50, 100])),
    (
        "guided",
        drawn((20, 37, 3), (9, 50, 1), (5, 6, 4), (123, 645, 1)),
        every(radius=[1, 2, 37, 100], eps=[1e-6, 0.01, 1]),
    ),
    ("guided", lambda: contrasts()[1:], every(radius=[1, 3, 100], eps=[1e-6])),
    (
        "nl_means",
        drawn((33, 66, 3), (9, 70, 1), (5, 6, 4), (1, 1, 3)),
        every(h=[1, 13.7, 100], patch=[1, 3, 15], search=[3, 9, 21]),
    ),
    (
        "gaussian_blur",
        drawn(*SHAPES, (70, 131, 3)),
        every(
            sigma=[0.1, 0.24, 0.25, 1, 2.12, 2.13, 6.12, 6.13, 26.1, 26.2, 100], sigma_y=[0.7, 75]
        ),
    ),
    (
        "box_blur",
        drawn((70, 131, 3), (365, 4, 3), (3, 1030, 1), (7, 3, 3), (5, 519, 3), (40, 33, 4)),
        every(radius=[0, 1, 7, 8, 25, 26, 31, 32, 64, 191, 192, 255, 256, 500]),
    ),
]


@pytest.mark.parametrize(
    ("name", "images", "parameters"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)]
)
def test_kernels_are_exact_at_the_ends_of_their_parameters(
    name: str, images: Callable[[], Images], parameters: Iterable[Chosen]
) -> None:
    given = images()
    for chosen in parameters:
        assert_equal([parse_one(name, chosen)] * len(given), given)


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


def test_whole_weights_at_the_ends_of_16_bits_are_exact_and_larger_ones_take_another_kernel() -> (
    None
):
    ends = np.array([0, 1, 254, 255], np.uint8)
    images = [np.random.default_rng(c).choice(ends, (40, 300, c)) for c in (1, 3, 4)]
    images += [np.full((35, 140, c), level, np.uint8) for c in (1, 3, 4) for level in (0, 255)]
    rising = [[127, 0, 0], [0, -63, 1], [0, -65, 0]]
    falling = [[0, -64, 64], [-63, 63, 0], [0, 0, 1]]
    for chosen in every(kernel=(rising, falling), divisor=(1, 2, 16, 128)):
        operation = parse_one("convolve", chosen)
        assert operation.device_passes == SMALL_INT_PASSES
        assert_equal([operation] * len(images), images)
    for kernel, divisor in (([[129, 0, 0]], 1), ([[0, 0, -129]], 1), ([[1]] * 4, 1), ([[1]], 256)):
        other = parse_one("convolve", {"kernel": kernel, "divisor": divisor})
        assert other.device_passes != SMALL_INT_PASSES
