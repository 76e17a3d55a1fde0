"""Neighbourhood filters on real photos and odd images against SciPy, OpenCV and Pillow."""

import functools
from collections.abc import Callable

import cv2
import numpy as np
import pytest
import scipy.ndimage
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from models.codec.decode import decode
from models.domain.errors import ServiceError
from models.domain.image import Pixels
from tests.pictures import as_image
from tests.shared import ODD, PHOTOS
from workers.filters.arithmetic.colour import luma
from workers.filters.blur import MotionBlur
from workers.filters.registry import parse_one

LARGEST = 181
"""Pixels a side: references are slow."""

Reference = Callable[[Pixels], NDArray[np.float64]]
KERNEL = np.array([[1.5, -0.3, 0.0], [0.7, 0.1, -2.0], [0.2, 0.9, 0.15]])


@functools.cache
def samples() -> list[tuple[str, Pixels]]:
    """Return the middle of some photos, and of every odd image that is decoded, one of a shape."""
    seen, found = set(), []
    for path in [*sorted(PHOTOS.glob("*.JPEG"))[:8], *sorted(ODD.glob("*"))]:
        if not path.is_file():
            continue
        try:
            pixels = as_image(decode(path.read_bytes(), max_pixels=1_000_000).image).pixels
        except ServiceError:
            continue
        top, left = (max(0, (n - LARGEST) // 2) for n in pixels.shape[:2])
        part = np.ascontiguousarray(pixels[top : top + LARGEST, left : left + LARGEST])
        if path.parent == PHOTOS or part.shape not in seen:
            seen.add(part.shape)
            found.append((path.name, part))
    return found


def by_opencv(pixels: Pixels, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    found = cv2.filter2D(
        pixels.astype(np.float64), cv2.CV_64F, weights, borderType=cv2.BORDER_REPLICATE
    )
    return np.asarray(found, np.float64).reshape(pixels.shape)


def moved(pixels: Pixels) -> NDArray[np.float64]:
    weights = MotionBlur(length=31, angle=20).fixed() / (1 << 15)
    return by_opencv(pixels, weights)


def emphasised(pixels: Pixels) -> NDArray[np.float64]:
    """Return Pillow's result; Pillow leaves a margin, so the image gets one before."""
    wide = np.pad(pixels, ((2, 2), (2, 2), (0, 0)), mode="edge")
    found = Image.fromarray(wide.squeeze()).filter(ImageFilter.DETAIL)
    return np.asarray(found, np.float64).reshape(wide.shape)[2:-2, 2:-2]


def gradient(pixels: Pixels, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    grey = luma(pixels).astype(np.float64)
    x, y = (scipy.ndimage.correlate(grey, w, mode="nearest") for w in (weights, weights.T))
    return as_colour(np.rint(np.hypot(x, y)), pixels)


def as_colour(grey: NDArray[np.float64], pixels: Pixels) -> NDArray[np.float64]:
    return np.repeat(grey[..., None], pixels.shape[2], 2)


def spots(pixels: Pixels) -> NDArray[np.float64]:
    grey = luma(pixels).astype(np.float64)
    return as_colour(np.abs(scipy.ndimage.laplace(grey, mode="nearest")), pixels)


def between(pixels: Pixels) -> NDArray[np.float64]:
    grey = luma(pixels).astype(np.float64)
    one, two = (scipy.ndimage.gaussian_filter(grey, s, mode="nearest") for s in (1, 3))
    return as_colour(np.abs(one - two), pixels)


def ranked(pixels: Pixels) -> NDArray[np.float64]:
    found = scipy.ndimage.percentile_filter(pixels, 30, (7, 7, 1), mode="nearest")
    return np.asarray(found, np.float64)


def denoised(pixels: Pixels) -> NDArray[np.float64]:
    found = cv2.fastNlMeansDenoising(pixels, None, 12, 5, 9)
    return np.asarray(found, np.float64).reshape(pixels.shape)


def slope(side: float, middle: float) -> NDArray[np.float64]:
    return np.array([side, middle, side])[:, None] * [-1.0, 0.0, 1.0]


CASES: list[tuple[str, dict[str, object], Reference, float]] = [
    ("convolve", {"kernel": KERNEL.tolist()}, lambda p: by_opencv(p, KERNEL), 0.76),
    ("motion_blur", {"length": 31, "angle": 20}, moved, 0.501),
    ("preset", {"kernel": "detail"}, emphasised, 0),
    ("scharr", {}, lambda p: gradient(p, slope(3, 10)), 0),
    ("prewitt", {}, lambda p: gradient(p, slope(1, 1)), 0),
    ("laplacian", {"ksize": 1}, spots, 0),
    ("dog", {"sigma1": 1, "sigma2": 3, "scale": 1}, between, 0.52),
    ("rank", {"size": 7, "percentile": 30}, ranked, 0),
    ("nl_means", {"h": 12, "patch": 5, "search": 9}, denoised, 2),
]


@pytest.mark.skipif(not PHOTOS.exists(), reason=f"{PHOTOS} is not there")
@pytest.mark.parametrize(("name", "parameters", "reference", "most"), CASES)
def test_a_filter_of_real_images_is_its_reference(
    name: str, parameters: dict[str, object], reference: Reference, most: float
) -> None:
    filter_ = parse_one(name, parameters)
    for file, pixels in samples():
        alpha_is_no_plane = name != "rank" and pixels.shape[2] == 4
        shown = np.ascontiguousarray(pixels[..., :3]) if alpha_is_no_plane else pixels
        expected = np.clip(reference(shown), 0, 255)
        assert np.abs(filter_.apply(shown) - expected).max() <= most, file
        if filter_.alpha_rule == "keep" and alpha_is_no_plane:
            whole = filter_.apply(pixels)
            assert np.array_equal(whole[..., 3], pixels[..., 3]), file
            assert np.array_equal(whole[..., :3], filter_.apply(shown)), file
