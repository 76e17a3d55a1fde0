"""Filters of frequencies against scipy.fft on the whole plane of frequencies."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.fft
from numpy.typing import NDArray

from models.domain.errors import InvalidParameter
from tests.unit.workers.filters.images import image
from workers.filters.fourier import NEARLY, PIECES, FftFilter

Plane = NDArray[Any]
SHAPES = [(1, 1, 1), (1, 7, 3), (8, 1, 1), (31, 8, 4), (97, 100, 3), (60, 701, 1)]


def low(filter_: FftFilter, distance: Plane, cutoff: float) -> Plane:
    shapes: dict[str, Plane] = {
        "ideal": np.where(distance <= cutoff + 1e-12, 1.0, 0.0),
        "gaussian": np.exp(-(distance**2) / (2 * cutoff**2)),
        "butterworth": 1 / (1 + (distance / cutoff) ** (2 * filter_.order)),
    }
    return shapes[filter_.shape]


def expected(filter_: FftFilter, plane: Plane) -> Any:
    height, width = plane.shape
    found = scipy.fft.fft2(plane)
    if filter_.kind == "spectrum":
        magnitudes = np.log1p(np.abs(scipy.fft.fftshift(found)))
        return np.floor(255 * magnitudes / math.log1p(255 * plane.size) + 0.5 + NEARLY)
    ys, xs = scipy.fft.fftfreq(height)[:, None], scipy.fft.fftfreq(width)

    def around(x: float, y: float) -> Any:
        far = [np.minimum(np.abs(d) % 1, 1 - np.abs(d) % 1) for d in (xs - x, ys - y)]
        return np.hypot(*far)

    lowest, highest = (low(filter_, around(0, 0), c) for c in (filter_.cutoff, filter_.high))
    places = [(s * x, s * y) for x, y in filter_.notches for s in (1, -1)]
    notched = (1 - low(filter_, around(*place), filter_.cutoff) for place in places)
    masks = {
        "lowpass": lowest,
        "highpass": 1 - lowest,
        "bandpass": (1 - lowest) * highest,
        "notch": math.prod(notched),
    }
    result = scipy.fft.ifft2(found * masks[filter_.kind])
    return np.clip(np.floor(result.real + filter_.offset + 0.5 + NEARLY), 0, 255)


@pytest.mark.parametrize("kind", ["lowpass", "highpass", "bandpass", "notch", "spectrum"])
@pytest.mark.parametrize("shape", ["ideal", "gaussian", "butterworth"])
@pytest.mark.parametrize("cutoff", [0.0001, 0.1, 0.25, 0.5])
def test_all_kinds_are_those_of_scipy_also_where_halves_are_frequent(
    kind: str, shape: str, cutoff: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PIECES, "numpy", 5000)  # the two largest images have several pieces
    notches = [[0.1, 0.2], [0.5, -0.25]]
    chosen = {"kind": kind, "shape": shape, "cutoff": cutoff, "high": 0.6, "notches": notches}
    filter_ = FftFilter.model_validate({**chosen, "order": 3, "offset": 20})
    for height, width, channels in SHAPES:
        pixels = image(height, width, channels, 1)
        pixels[..., 0] = np.add.outer(np.arange(height), np.arange(width)) % 2 * 255
        found = filter_.apply(pixels)
        for colour in range(min(channels, 3)):
            assert np.array_equal(found[..., colour], expected(filter_, pixels[..., colour]))


def test_an_image_with_a_side_beyond_the_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidParameter, match="65536 pixels at most, not 65537"):
        FftFilter().shape_after((65537, 1, 1))
