"""Every filter's CPU specification against the fastest library call for the same job.

Method. One RGB image of 1920 × 1080, smooth colours with grain; both calls take and give uint8 RGB
and have one thread, as a worker on a CPU gives every batch a core. Time is the processor's, so that
what else runs counts only for the caches it takes. They are timed in turns, ours first, for as many
rounds as fit `--seconds`, 3 at least and 60 at most, after one round to warm up; the fastest round
of each counts. Freed memory is kept, as a worker keeps it. A ratio above 1 means that ours takes
longer.

Run: python -m tests.bench.filters_cpu [--seconds 2] [--only NAME …]

Above 1.5 because of what they mean: Gaussians (gaussian_blur, unsharp_mask, dog) keep 24 bits of a
fraction, in float64, where OpenCV keeps 8 or the peer float32; color_matrix and sepia have weights
of 16 bits, OpenCV of 10; sharpen rounds twice, as Pillow does, and its peer has five weights
instead of nine; brightness looks up every byte, because 80 and 100 times 1.3 are 104 and 130 in
Pillow's float32, but 90 times 1.3 is cut off at 116, which no multiplication and addition repeats.
Blends with an image (saturation, sharpen) are one call of OpenCV only for factors that leave room
for its roundings, which are nine tenths of those tried; 1.5 and 2 are among them, 1.3 is not.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from PIL import __version__ as pillow_version

from models.malloc import keep_freed_memory
from tests.bench.report import report
from tests.pictures import drawing
from workers.filters.registry import parse_chain

WIDTH, HEIGHT = 1920, 1080
FEWEST, MOST = 3, 60
"""Rounds."""

Pixels = NDArray[np.uint8]
Peer = Callable[[Pixels], object]

REPLICATE, MIRROR = cv2.BORDER_REPLICATE, cv2.BORDER_REFLECT_101
TABLE = np.arange(256, dtype=np.uint8)[::-1].copy()
MATRIX = np.array([[0.4, 0.8, 0.2], [0.3, 0.7, 0.2], [0.3, 0.5, 0.1]], np.float32)
SHARP = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
EMBOSS = np.array([[0, 0, 0], [0, 1, 0], [-1, 0, 0]], np.float32)
MASK = np.full((1080, 1920, 3), 0.8, np.float32)


def _grey(p: Pixels) -> Pixels:
    return np.asarray(Image.fromarray(p).convert("L"))


def _colour(plane: cv2.typing.MatLike) -> object:
    return cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB)


def _line(p: Pixels) -> object:
    weights = np.eye(21, dtype=np.float32) / 21
    return cv2.filter2D(p, -1, weights, borderType=REPLICATE)


def _hue(p: Pixels) -> object:
    hsv = cv2.cvtColor(p, cv2.COLOR_RGB2HSV_FULL)
    shift: Any = (40, 0, 0, 0)  # OpenCV takes a scalar here; its stubs do not say so
    return cv2.cvtColor(cv2.add(hsv, shift), cv2.COLOR_HSV2RGB_FULL)


def _saturation(p: Pixels) -> object:
    return cv2.addWeighted(p, 1.5, np.asarray(_colour(_grey(p))), -0.5, 0)


def _contrast(p: Pixels) -> object:
    mean = cv2.mean(_grey(p))[0]
    return cv2.convertScaleAbs(p, alpha=1.5, beta=-0.5 * mean)


def _autocontrast(p: Pixels) -> object:
    for channel in range(3):
        cv2.calcHist([p], [channel], None, [256], [0, 256])
    return cv2.LUT(p, TABLE)


def _equalize(p: Pixels) -> object:
    return cv2.merge([cv2.equalizeHist(plane) for plane in cv2.split(p)])


def _clahe(p: Pixels) -> object:
    y, cr, cb = cv2.split(cv2.cvtColor(p, cv2.COLOR_RGB2YCrCb))
    y = cv2.createCLAHE(2, (8, 8)).apply(y)
    return cv2.cvtColor(cv2.merge([y, cr, cb]), cv2.COLOR_YCrCb2RGB)


def _unsharp(p: Pixels) -> object:
    return cv2.addWeighted(p, 2.5, cv2.GaussianBlur(p, (0, 0), 2), -1.5, 0)


def _threshold(p: Pixels, kind: int = cv2.THRESH_BINARY) -> object:
    return _colour(cv2.threshold(_grey(p), 128, 255, kind)[1])


def _magnitude(p: Pixels, x: Peer, y: Peer) -> object:
    light = _grey(p)
    across, down = (np.asarray(each(light), np.float32) for each in (x, y))
    return _colour(cv2.convertScaleAbs(cv2.magnitude(across, down)))


def _derived(p: Pixels, operator: Callable[..., object]) -> object:
    def along(dx: int, dy: int) -> Peer:
        return lambda light: operator(light, cv2.CV_32F, dx, dy, borderType=REPLICATE)

    return _magnitude(p, along(1, 0), along(0, 1))


def _prewitt(p: Pixels) -> object:
    slope, mean = np.array([[-1.0, 0.0, 1.0]]), np.ones((1, 3))

    def along(x: NDArray[np.float64], y: NDArray[np.float64]) -> Peer:
        return lambda light: cv2.sepFilter2D(light, cv2.CV_32F, x, y, borderType=REPLICATE)

    return _magnitude(p, along(slope, mean), along(mean, slope))


def _laplacian(p: Pixels) -> object:
    found = cv2.Laplacian(_grey(p), cv2.CV_16S, ksize=3, borderType=REPLICATE)
    return _colour(cv2.convertScaleAbs(found))


def _dog(p: Pixels) -> object:
    light = _grey(p).astype(np.float32)
    one, two = (cv2.GaussianBlur(light, (0, 0), s, borderType=REPLICATE) for s in (1, 2))
    return _colour(cv2.convertScaleAbs(cv2.subtract(one, two), alpha=8))


def _guided(p: Pixels) -> object:
    def mean(plane: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(cv2.boxFilter(plane, -1, (13, 13), borderType=MIRROR), np.float32)

    light = _grey(p).astype(np.float32)
    level = mean(light)
    spread, result = mean(light * light) - level * level + 0.02 * 255 * 255, []
    for channel in cv2.split(p):
        plane = channel.astype(np.float32)
        slope = (mean(light * plane) - level * mean(plane)) / spread
        result.append(mean(slope) * light + mean(mean(plane) - slope * level))
    return cv2.convertScaleAbs(cv2.merge(result))


def _pixelate(p: Pixels) -> object:
    height, width = p.shape[:2]
    small = cv2.resize(p, (width // 10, height // 10), interpolation=cv2.INTER_AREA)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST)


def _noise(p: Pixels) -> object:
    grain = np.empty(p.shape, np.int16)
    mean, deviation = cast(Any, (0, 0, 0)), cast(Any, (20, 20, 20))  # as in `hue`
    cv2.randn(grain, mean, deviation)
    return cv2.add(p, grain, dtype=cv2.CV_8U)


def _adaptive(p: Pixels) -> object:
    method, kind = cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY
    return _colour(cv2.adaptiveThreshold(_grey(p), 255, method, kind, 31, 5))


def _by_pillow(each: Callable[[Image.Image], Image.Image]) -> Peer:
    return lambda p: np.asarray(each(Image.fromarray(p)))


def _by_table(p: Pixels) -> object:
    return cv2.LUT(p, TABLE)


PEERS: dict[str, tuple[dict[str, object], Peer]] = {
    "grayscale": ({}, lambda p: _colour(_grey(p))),
    "invert": ({}, cv2.bitwise_not),
    "brightness": ({"factor": 1.3}, lambda p: cv2.convertScaleAbs(p, alpha=1.3)),
    "contrast": ({"factor": 1.5}, _contrast),
    "saturation": ({"factor": 1.5}, _saturation),
    "hue": ({"degrees": 60}, _hue),
    "gamma": ({"gamma": 2}, _by_table),
    "levels": ({"in_black": 20}, _by_table),
    "posterize": ({}, _by_table),
    "solarize": ({}, _by_table),
    "threshold": ({}, _threshold),
    "otsu": ({}, lambda p: _threshold(p, cv2.THRESH_BINARY | cv2.THRESH_OTSU)),
    "sepia": ({}, lambda p: cv2.transform(p, MATRIX)),
    "color_matrix": (
        {"matrix": [0.4, 0.8, 0.2, 0, 0.3, 0.7, 0.2, 0, 0.3, 0.5, 0.1, 0]},
        lambda p: cv2.transform(p, MATRIX),
    ),
    "colorize": (
        {"black": "221c4a", "white": "ffd9a0"},
        lambda p: cv2.LUT(np.asarray(_colour(_grey(p))), TABLE),
    ),
    "autocontrast": ({"cutoff": 1}, _autocontrast),
    "equalize": ({}, _equalize),
    "clahe": ({}, _clahe),
    "gaussian_blur": ({}, lambda p: cv2.GaussianBlur(p, (0, 0), 2, borderType=REPLICATE)),
    "box_blur": ({}, lambda p: cv2.blur(p, (5, 5), borderType=REPLICATE)),
    "motion_blur": ({"length": 21, "angle": -45}, _line),
    "median": ({}, lambda p: cv2.medianBlur(p, 3)),
    "rank": (
        {"size": 5, "percentile": 80},
        _by_pillow(lambda image: image.filter(ImageFilter.RankFilter(5, 20))),
    ),
    "bilateral": ({}, lambda p: cv2.bilateralFilter(p, 9, 50, 50)),
    "guided": ({"radius": 6, "eps": 0.02}, _guided),
    "nl_means": ({}, lambda p: cv2.fastNlMeansDenoising(p, None, 10, 7, 21)),
    "unsharp_mask": ({}, _unsharp),
    "sharpen": ({}, lambda p: cv2.filter2D(p, -1, SHARP)),
    "preset": ({}, lambda p: cv2.filter2D(p, -1, EMBOSS, delta=128, borderType=REPLICATE)),
    "convolve": (
        {"kernel": SHARP.tolist()},
        lambda p: cv2.filter2D(p, -1, SHARP, borderType=REPLICATE),
    ),
    "sobel": ({}, lambda p: _derived(p, cv2.Sobel)),
    "scharr": ({}, lambda p: _derived(p, cv2.Scharr)),
    "prewitt": ({}, _prewitt),
    "laplacian": ({}, _laplacian),
    "dog": ({"sigma1": 1, "sigma2": 2, "scale": 8}, _dog),
    "canny": ({}, lambda p: _colour(cv2.Canny(_grey(p), 100, 200))),
    "morphology": (
        {"op": "open", "size": 5},
        lambda p: cv2.morphologyEx(p, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8)),
    ),
    "adaptive_threshold": ({"block": 31, "c": 5}, _adaptive),
    "pixelate": ({"size": 10}, _pixelate),
    "vignette": ({}, lambda p: cv2.multiply(p, MASK, dtype=cv2.CV_8U)),
    "noise": ({"amount": 20}, _noise),
    "flip": ({}, lambda p: cv2.flip(p, 1)),
    "rotate90": ({}, lambda p: cv2.rotate(p, cv2.ROTATE_90_CLOCKWISE)),
    "resize": (
        {"width": 960, "height": 540},
        _by_pillow(lambda image: image.resize((960, 540), Image.Resampling.BILINEAR)),
    ),
    "crop": ({"width": 960, "height": 540}, lambda p: p[270:810, 480:1440].copy()),
    "pad": (
        {"left": 16, "top": 16, "right": 16, "bottom": 16},
        lambda p: cv2.copyMakeBorder(p, 16, 16, 16, 16, cv2.BORDER_CONSTANT),
    ),
    "composite": ({}, np.copy),
}
"""The parameters of each filter, and the fastest library call for the same job, not the same bytes:
a peer may round otherwise."""


def seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of the process for one call; other load does not count."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def compared(ours: Peer, theirs: Peer, pixels: Pixels, limit: float) -> tuple[float, float]:
    """Return the fastest time of each, in seconds."""
    calls = [partial(ours, pixels), partial(theirs, pixels)]
    for call in calls:
        call()
    rounds: list[list[float]] = []
    begun = time.perf_counter()
    while len(rounds) < FEWEST or (len(rounds) < MOST and time.perf_counter() - begun < limit):
        rounds.append([seconds(call) for call in calls])
    one, other = (min(times) for times in zip(*rounds, strict=True))
    return one, other


def main() -> None:
    """Measure everything, print a table, and all of it as JSON on the last line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=2)
    arguments.add_argument("--only", nargs="*", default=list(PEERS))
    given = arguments.parse_args()
    keep_freed_memory()
    cv2.setNumThreads(1)
    pixels = np.asarray(drawing(WIDTH, HEIGHT))
    rows = []
    for name in given.only:
        parameters, peer = PEERS[name]
        (filter_,) = parse_chain([{"name": name, **parameters}])
        ours, theirs = compared(filter_.apply, peer, pixels, given.seconds)
        row = {"filter": name, "parameters": parameters, "milliseconds": round(1e3 * ours, 2)}
        row |= {"peer_milliseconds": round(1e3 * theirs, 2), "ratio": round(ours / theirs, 2)}
        rows.append(row)
        print(f"{name:20} {1e3 * ours:9.2f} ms {1e3 * theirs:9.2f} ms {ours / theirs:6.2f}")
    versions = {"opencv": cv2.__version__, "numpy": np.__version__, "pillow": pillow_version}
    report("filters_cpu", **versions, filters=rows)


if __name__ == "__main__":
    main()
