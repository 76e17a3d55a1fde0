"""Linear neighbourhood filters on images with alpha: on colour times alpha, and on alpha.

Guarantee: the colour of transparent pixels never leaks into visible ones; pixels whose filtered
alpha is 0 become 0, 0, 0, 0.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from models.image import Pixels

Planes = NDArray[np.float64]
"""Float64 planes that hold integers below 2**53, so every sum over them is exact in any order."""


def filtered(
    pixels: Pixels,
    weighted_sums: Callable[[Planes], NDArray[np.int64]],
    rounded: Callable[[NDArray[np.int64]], NDArray[np.int64]],
) -> Pixels:
    """Apply a linear filter: `weighted_sums` of planes (H, W, n), `rounded` to 0…255.

    With alpha, colour is (2·N + D) // (2·D), N the sum over colour·alpha and D that over alpha.
    """
    if pixels.shape[2] < 4:
        return rounded(weighted_sums(pixels.astype(np.float64))).astype(np.uint8)
    alpha = pixels[:, :, 3:].astype(np.float64)
    sums = weighted_sums(np.concatenate((pixels[:, :, :3] * alpha, alpha), 2))
    colour, weight = sums[:, :, :3], sums[:, :, 3:]
    visible = rounded(weight)
    divisor = np.where(weight > 0, weight, 1)
    straight = np.where(visible > 0, (2 * colour + divisor) // (2 * divisor), 0)
    return np.concatenate((straight, visible), 2).astype(np.uint8)
