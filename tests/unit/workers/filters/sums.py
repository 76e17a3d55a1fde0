"""Correlation by the book, for tests: whole numbers, added one by one."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

PAD: dict[str, Literal["edge", "symmetric", "reflect", "wrap", "constant"]] = {
    "replicate": "edge",
    "reflect": "symmetric",
    "mirror": "reflect",
    "wrap": "wrap",
    "constant": "constant",
}


def slow_sums(
    plane: NDArray[np.int64], weights: NDArray[np.int64], border: str
) -> NDArray[np.int64]:
    """Return the correlation sums, integers that are added one by one."""
    rows, columns = weights.shape
    up, left = rows // 2, columns // 2
    margins = ((up, rows - 1 - up), (left, columns - 1 - left))
    padded = np.pad(plane, margins, mode=PAD[border])
    total = np.zeros(plane.shape, np.int64)
    for row, column in zip(*np.nonzero(weights), strict=True):
        window = padded[row : row + plane.shape[0], column : column + plane.shape[1]]
        total += weights[row, column] * window
    return total
