"""What `filters_cpu` measures filters against: for each, the fastest library call for the same job.

The same job, not the same bytes: a peer may round otherwise. All take and
give uint8 RGB. Only the names of Darkroom's filters are used here.
"""

from collections.abc import Callable
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Pixels = NDArray[np.uint8]
Peer = Callable[[Pixels], object]

REPLICATE, MIRROR = cv2.BORDER_REPLICATE, cv2.BORDER_REFLECT_101
TABLE = np.arange(256, dtype=np.uint8)[::-1].copy()
MATRIX = np.array([[0.4, 0.8, 0.2], [0.3, 0.7, 0.2], [0.3, 0.5, 0.1]], np.float32)
SHARP = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
EMBOSS = np.array([[0, 0, 0], [0, 1, 0], [-1, 0, 0]], np.float32)
MASK = np.full((1080, 1920, 3), 0.8, np.float32)


def grey(p: Pixels) -> Pixels:
    """Return Pillow's luma, which the filters use too: the only library call for it."""
    return np.asarray(Image.fromarray(p).convert("L"))


def colour(plane: cv2.typing.MatLike) -> object:
    """Return a grey plane as RGB."""
    return cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB)


def line(p: Pixels) -> object:
    """Blur along a horizontal line of 21 pixels."""
    weights = np.eye(21, dtype=np.float32) / 21
    return cv2.filter2D(p, -1, weights, borderType=REPLICATE)


def hue(p: Pixels) -> object:
    """Turn hues by 40 of 256 steps."""
    hsv = cv2.cvtColor(p, cv2.COLOR_RGB2HSV_FULL)
    shift: Any = (40, 0, 0, 0)  # OpenCV takes a scalar here; its stubs do not say so
    return cv2.cvtColor(cv2.add(hsv, shift), cv2.COLOR_HSV2RGB_FULL)


def saturation(p: Pixels) -> object:
    """Raise the distance from grey by a half."""
    return cv2.addWeighted(p, 1.5, np.asarray(colour(grey(p))), -0.5, 0)


def contrast(p: Pixels) -> object:
    """Raise the distance from the mean luma by a half."""
    mean = cv2.mean(grey(p))[0]
    return cv2.convertScaleAbs(p, alpha=1.5, beta=-0.5 * mean)


def autocontrast(p: Pixels) -> object:
    """Compute the histograms and apply one table."""
    for channel in range(3):
        cv2.calcHist([p], [channel], None, [256], [0, 256])
    return cv2.LUT(p, TABLE)


def equalize(p: Pixels) -> object:
    """Equalize each channel by itself."""
    return cv2.merge([cv2.equalizeHist(plane) for plane in cv2.split(p)])


def clahe(p: Pixels) -> object:
    """Equalize Y of YCrCb in 8 × 8 tiles, with a clip limit of 2."""
    y, cr, cb = cv2.split(cv2.cvtColor(p, cv2.COLOR_RGB2YCrCb))
    y = cv2.createCLAHE(2, (8, 8)).apply(y)
    return cv2.cvtColor(cv2.merge([y, cr, cb]), cv2.COLOR_YCrCb2RGB)


def unsharp(p: Pixels) -> object:
    """Sharpen by one and a half times the difference to a Gaussian of sigma 2."""
    return cv2.addWeighted(p, 2.5, cv2.GaussianBlur(p, (0, 0), 2), -1.5, 0)


def threshold(p: Pixels, kind: int = cv2.THRESH_BINARY) -> object:
    """Compare the luma with 128."""
    return colour(cv2.threshold(grey(p), 128, 255, kind)[1])


def magnitude(p: Pixels, x: Peer, y: Peer) -> object:
    """Return the length of the gradient of the luma, whose parts `x` and `y` compute."""
    light = grey(p)
    across, down = (np.asarray(each(light), np.float32) for each in (x, y))
    return colour(cv2.convertScaleAbs(cv2.magnitude(across, down)))


def sobel(p: Pixels) -> object:
    """Return the length of Sobel's gradient."""

    def along(dx: int, dy: int) -> Peer:
        return lambda light: cv2.Sobel(light, cv2.CV_32F, dx, dy, borderType=REPLICATE)

    return magnitude(p, along(1, 0), along(0, 1))


def scharr(p: Pixels) -> object:
    """Return the length of Scharr's gradient."""

    def along(dx: int, dy: int) -> Peer:
        return lambda light: cv2.Scharr(light, cv2.CV_32F, dx, dy, borderType=REPLICATE)

    return magnitude(p, along(1, 0), along(0, 1))


def prewitt(p: Pixels) -> object:
    """Return the length of Prewitt's gradient."""
    slope, mean = np.array([[-1.0, 0.0, 1.0]]), np.ones((1, 3))

    def along(x: NDArray[np.float64], y: NDArray[np.float64]) -> Peer:
        return lambda light: cv2.sepFilter2D(light, cv2.CV_32F, x, y, borderType=REPLICATE)

    return magnitude(p, along(slope, mean), along(mean, slope))


def laplacian(p: Pixels) -> object:
    """Return the absolute Laplacian of the luma, with a kernel of 3 × 3."""
    found = cv2.Laplacian(grey(p), cv2.CV_16S, ksize=3, borderType=REPLICATE)
    return colour(cv2.convertScaleAbs(found))


def dog(p: Pixels) -> object:
    """Return eight times the absolute difference of two Gaussians, sigma 1 and 2."""
    light = grey(p).astype(np.float32)
    one, two = (cv2.GaussianBlur(light, (0, 0), s, borderType=REPLICATE) for s in (1, 2))
    return colour(cv2.convertScaleAbs(cv2.subtract(one, two), alpha=8))


def guided(p: Pixels) -> object:
    """Compose the guided filter by hand: OpenCV has it in its contributed modules only."""

    def mean(plane: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(cv2.boxFilter(plane, -1, (13, 13), borderType=MIRROR), np.float32)

    light = grey(p).astype(np.float32)
    level = mean(light)
    spread, result = mean(light * light) - level * level + 0.02 * 255 * 255, []
    for channel in cv2.split(p):
        plane = channel.astype(np.float32)
        slope = (mean(light * plane) - level * mean(plane)) / spread
        result.append(mean(slope) * light + mean(mean(plane) - slope * level))
    return cv2.convertScaleAbs(cv2.merge(result))


def pixelate(p: Pixels) -> object:
    """Average squares of 10 pixels a side."""
    height, width = p.shape[:2]
    small = cv2.resize(p, (width // 10, height // 10), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST)


def noise(p: Pixels) -> object:
    """Add normal noise with a deviation of 20 levels."""
    grain = np.empty(p.shape, np.int16)
    mean, deviation = cast(Any, (0, 0, 0)), cast(Any, (20, 20, 20))  # as in `hue`
    cv2.randn(grain, mean, deviation)
    return cv2.add(p, grain, dtype=cv2.CV_8U)


def adaptive(p: Pixels) -> object:
    """Compare the luma with the mean of 31 × 31 pixels less 5."""
    method, kind = cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY
    return colour(cv2.adaptiveThreshold(grey(p), 255, method, kind, 31, 5))


def by_pillow(each: Callable[[Image.Image], Image.Image]) -> Peer:
    """Return a peer that calls a function of Pillow."""
    return lambda p: np.asarray(each(Image.fromarray(p)))


def by_table(p: Pixels) -> object:
    """Map all levels by one table."""
    return cv2.LUT(p, TABLE)


PEERS: dict[str, tuple[dict[str, object], Peer]] = {
    "grayscale": ({}, lambda p: colour(grey(p))),
    "invert": ({}, cv2.bitwise_not),
    "brightness": ({"factor": 1.3}, lambda p: cv2.convertScaleAbs(p, alpha=1.3)),
    "contrast": ({"factor": 1.5}, contrast),
    "saturation": ({"factor": 1.5}, saturation),
    "hue": ({"degrees": 60}, hue),
    "gamma": ({"gamma": 2}, by_table),
    "levels": ({"in_black": 20}, by_table),
    "posterize": ({}, by_table),
    "solarize": ({}, by_table),
    "threshold": ({}, threshold),
    "otsu": ({}, lambda p: threshold(p, cv2.THRESH_BINARY | cv2.THRESH_OTSU)),
    "sepia": ({}, lambda p: cv2.transform(p, MATRIX)),
    "color_matrix": (
        {"matrix": [0.4, 0.8, 0.2, 0, 0.3, 0.7, 0.2, 0, 0.3, 0.5, 0.1, 0]},
        lambda p: cv2.transform(p, MATRIX),
    ),
    "colorize": (
        {"black": "221c4a", "white": "ffd9a0"},
        lambda p: cv2.LUT(np.asarray(colour(grey(p))), TABLE),
    ),
    "autocontrast": ({"cutoff": 1}, autocontrast),
    "equalize": ({}, equalize),
    "clahe": ({}, clahe),
    "gaussian_blur": ({}, lambda p: cv2.GaussianBlur(p, (0, 0), 2, borderType=REPLICATE)),
    "box_blur": ({}, lambda p: cv2.blur(p, (5, 5), borderType=REPLICATE)),
    "motion_blur": ({"length": 21, "angle": -45}, line),
    "median": ({}, lambda p: cv2.medianBlur(p, 3)),
    "rank": (
        {"size": 5, "percentile": 80},
        by_pillow(lambda image: image.filter(ImageFilter.RankFilter(5, 20))),
    ),
    "bilateral": ({}, lambda p: cv2.bilateralFilter(p, 9, 50, 50)),
    "guided": ({"radius": 6, "eps": 0.02}, guided),
    "nl_means": ({}, lambda p: cv2.fastNlMeansDenoising(p, None, 10, 7, 21)),
    "unsharp_mask": ({}, unsharp),
    "sharpen": ({}, lambda p: cv2.filter2D(p, -1, SHARP)),
    "preset": ({}, lambda p: cv2.filter2D(p, -1, EMBOSS, delta=128, borderType=REPLICATE)),
    "convolve": (
        {"kernel": SHARP.tolist()},
        lambda p: cv2.filter2D(p, -1, SHARP, borderType=REPLICATE),
    ),
    "sobel": ({}, sobel),
    "scharr": ({}, scharr),
    "prewitt": ({}, prewitt),
    "laplacian": ({}, laplacian),
    "dog": ({"sigma1": 1, "sigma2": 2, "scale": 8}, dog),
    "canny": ({}, lambda p: colour(cv2.Canny(grey(p), 100, 200))),
    "morphology": (
        {"op": "open", "size": 5},
        lambda p: cv2.morphologyEx(p, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8)),
    ),
    "adaptive_threshold": ({"block": 31, "c": 5}, adaptive),
    "pixelate": ({"size": 10}, pixelate),
    "vignette": ({}, lambda p: cv2.multiply(p, MASK, dtype=cv2.CV_8U)),
    "noise": ({"amount": 20}, noise),
    "flip": ({}, lambda p: cv2.flip(p, 1)),
    "rotate90": ({}, lambda p: cv2.rotate(p, cv2.ROTATE_90_CLOCKWISE)),
    "resize": (
        {"width": 960, "height": 540},
        by_pillow(lambda image: image.resize((960, 540), Image.Resampling.BILINEAR)),
    ),
    "crop": ({"width": 960, "height": 540}, lambda p: p[270:810, 480:1440].copy()),
    "pad": (
        {"left": 16, "top": 16, "right": 16, "bottom": 16},
        lambda p: cv2.copyMakeBorder(p, 16, 16, 16, 16, cv2.BORDER_CONSTANT),
    ),
    "composite": ({}, np.copy),
}
"""The filter's parameters, and its peer with the same ones."""
