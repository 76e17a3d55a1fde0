"""Gaussian weights and sums in fixed point, identical on any device.

Horizontal weights are Q22 and the intermediate is 8.8 fixed point; vertical weights are Q16.
Weights are rounded by largest remainder, symmetric, and sum to exactly one.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from workers.filters.premultiplied import Planes

ROW_BITS, COLUMN_BITS, MIDDLE_BITS = 22, 16, 8


def taps(sigma: float, bits: int) -> NDArray[np.int64]:
    """2r+1 integer weights with r = int(4·sigma + 0.5), summing to 2**bits; sigma in pixels.

    The window of scipy.ndimage.gaussian_filter with truncate=4.
    """
    radius = int(4 * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    exact: NDArray[np.float64] = np.exp(-0.5 * (offsets / sigma) ** 2)
    exact *= (1 << bits) / exact.sum()
    weights: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = (1 << bits) - int(weights.sum())
    half: NDArray[np.int64] = np.argsort(-(exact - weights)[:radius], kind="stable")[: missing // 2]
    weights[half] += 1
    weights[2 * radius - half] += 1
    weights[radius] += (1 << bits) - int(weights.sum())
    return weights


def blurred(planes: Planes, sigma_x: float, sigma_y: float) -> NDArray[np.int64]:
    """Gaussian sums of integer planes (H, W, n): int64, in units of 2**-24. Border: replicate."""
    rows = _correlate(planes, taps(sigma_x, ROW_BITS), axis=1)
    drop = ROW_BITS - MIDDLE_BITS
    middle = np.floor((rows + (1 << (drop - 1))) / (1 << drop))
    return _correlate(middle, taps(sigma_y, COLUMN_BITS), axis=0).astype(np.int64)


def to_byte(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    """Half-up from units of 2**-24 to 0…255."""
    bits = COLUMN_BITS + MIDDLE_BITS
    return np.asarray(np.minimum((sums + (1 << (bits - 1))) >> bits, 255), np.int64)


def _correlate(planes: Planes, weights: NDArray[np.int64], axis: int) -> Planes:
    """Exact whatever OpenCV's order of summation: all partial sums are integers below 2**53.

    `sepFilter2D`, because `filter2D` turns to a Fourier transform for long kernels.
    """
    line, one = weights.astype(np.float64), np.ones(1)
    x, y = (line, one) if axis == 1 else (one, line)
    sums = cv2.sepFilter2D(planes, cv2.CV_64F, x, y, borderType=cv2.BORDER_REPLICATE)
    return np.asarray(sums, np.float64).reshape(planes.shape)
