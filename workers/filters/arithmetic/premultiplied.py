"""Linear neighbourhood filters for images with alpha: filter colour times alpha, and alpha itself.

Guarantees: the colour of transparent pixels never leaks into visible ones, a plain colour keeps its
value under any alpha, and pixels whose filtered alpha is 0 become 0, 0, 0, 0.
"""

from collections.abc import Callable, Iterable

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.two_passes import Place, Planes, Sums


def filtered(
    pixels: Pixels,
    weighted_sums: Callable[[Planes], Iterable[tuple[Place, Sums]]],
    rounded: Callable[[Sums], Sums],
) -> Pixels:
    """Apply a linear filter to uint8 (H, W, C) and return uint8 of the same shape.

    `weighted_sums` yields float64 sums of planes piece by piece; `rounded` maps sums to 0…255. With
    alpha, the planes are uint16 colour · alpha and 255 · alpha. With N and D their sums, alpha is
    rounded(D // 255) and colour is (510·N + D) // (2·D), in integers below 2**50.
    """
    result = np.empty(pixels.shape, np.uint8)
    if pixels.shape[2] < 4:
        for place, sums in weighted_sums(pixels):
            result[place] = rounded(sums)
        return result
    for place, sums in weighted_sums(_premultiplied(pixels)):
        result[place] = _straight(sums, rounded)
    return result


def _premultiplied(pixels: Pixels) -> Planes:
    """Return colour · alpha and 255 · alpha, uint16 (H, W, 4).

    Alpha is weighted like the colour 255: its sum then bounds the sums of the colours and rounds
    like them. With alpha weighted as itself, the two roundings of a Gaussian made fringes of 256,
    which wrapped to black in a byte.
    """
    colour = pixels.copy()
    colour[:, :, 3] = 255
    alpha = cv2.merge([pixels[:, :, 3]] * 4)
    return np.multiply(colour, alpha, dtype=np.uint16)


def _straight(sums: Sums, rounded: Callable[[Sums], Sums]) -> Pixels:
    """Divide by alpha, uint8 (h, w, 4).

    A float64 quotient below 256 of such integers has the same floor as the exact quotient.
    """
    weight = sums[:, :, 3]
    visible = rounded(np.floor(weight / 255))
    divisor = np.where(visible > 0, 2 * weight, np.inf)
    result = np.empty(sums.shape, np.uint8)
    for channel in range(3):
        result[:, :, channel] = (510 * sums[:, :, channel] + weight) / divisor
    result[:, :, 3] = visible
    return result
