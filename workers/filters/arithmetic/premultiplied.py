"""Linear neighbourhood filters on images with alpha: on colour times alpha, and on alpha.

Guarantee: the colour of transparent pixels never leaks into visible ones, a plain colour stays
itself under any alpha, and pixels whose filtered alpha is 0 become 0, 0, 0, 0.
"""

from collections.abc import Callable, Iterable

import cv2
import numpy as np

from models.domain.image import Pixels
from workers.filters.arithmetic.separable import Place, Planes, Sums


def filtered(
    pixels: Pixels,
    weighted_sums: Callable[[Planes], Iterable[tuple[Place, Sums]]],
    rounded: Callable[[Sums], Sums],
) -> Pixels:
    """Apply a linear filter: `weighted_sums` of planes piece by piece, `rounded` to 0…255.

    With alpha the planes are 16-bit colour·alpha and 255·alpha. With N and D their sums,
    alpha is rounded(D // 255) and colour (510·N + D) // (2·D): integers below 2**50.
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
    """Alpha is weighed as the colour 255: its sum then bounds, and rounds like, the colours'.

    Weighed as itself, a Gaussian's two roundings made fringes of 256, black once stored.
    """
    colour = pixels.copy()
    colour[:, :, 3] = 255
    alpha = cv2.merge([pixels[:, :, 3]] * 4)
    return np.multiply(colour, alpha, dtype=np.uint16)


def _straight(sums: Sums, rounded: Callable[[Sums], Sums]) -> Pixels:
    """Divide by alpha: a float64 quotient below 256 of such integers floors as the exact one."""
    weight = sums[:, :, 3]
    visible = rounded(np.floor(weight / 255))
    divisor = np.where(visible > 0, 2 * weight, np.inf)
    result = np.empty(sums.shape, np.uint8)
    for channel in range(3):
        result[:, :, channel] = (510 * sums[:, :, channel] + weight) / divisor
    result[:, :, 3] = visible
    return result
