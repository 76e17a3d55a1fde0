"""Find a small picture, the template, in images: `TM_CCOEFF_NORMED` of `cv2.matchTemplate`.

The score of a place is the correlation coefficient of the template T and the window W below it, in
luma: sum((T - mean T)(W - mean W)) / sqrt(sum((T - mean T)²) sum((W - mean W)²)). It is between -1
and 1, and 0 for a window of one colour.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from models.domain.deadline import Deadline
from models.domain.errors import InvalidParameter
from models.domain.job import Match
from workers.filters.arithmetic.colour import luma
from workers.filters.interruption import ending_at, stop_if_late
from workers.filters.marks import MOST_PICTURE, pixels_in

TILE = 6 * MOST_PICTURE
"""Pixels of an image that are searched at a time. Neighbouring tiles overlap by the template: with
six times the pixels of the template, a tile has at most three times as many pixels as scores."""

TILE_BYTES = 30
"""Bytes for each pixel of a tile, in the sums and transforms of OpenCV: 21 to 29 were measured."""

LONGEST, LINE_BYTES = 2 * MOST_PICTURE, 230
"""Rows and columns of a tile at most, and further bytes for each of them: the transform of a line
takes 30 to 217 bytes for each sample, which counts where a tile is hardly wider than a line."""

DIGITS = 6
"""Decimal places of scores: float64 gives the same on all machines."""

Grey = NDArray[np.uint8]


def matches(
    grey: Grey, picture: bytes, k: int, threshold: float, deadline: Deadline
) -> list[Match]:
    """Return the best `k` places of a picture in luma (H, W), the best first, of equals the upper
    left, with scores of at least `threshold`.

    A place excludes all that are nearer than half of the template in x and y, so two places share
    at most half of their area. Raises InvalidParameter for a template of one luma, or one that is
    larger than the image, and DeadlineExceeded.
    """
    template = luma(pixels_in(picture))
    (height, width), (rows, columns) = template.shape, grey.shape
    wrong = ""
    if template.min() == template.max():
        wrong = "all pixels have the same luma, so that no place has a score; send a picture"
    elif height > rows or width > columns:
        wrong = f"it has {width} × {height} pixels and the image {columns} × {rows}; send a part"
    if wrong:
        raise InvalidParameter.of("template", wrong)
    down, across = (height - 1) // 2, (width - 1) // 2
    found: list[Match] = []
    with ending_at(deadline):
        scores = _scores(grey, template)
        while len(found) < k:
            stop_if_late()
            y, x = divmod(int(scores.argmax()), scores.shape[1])
            if (score := round(float(scores[y, x]), DIGITS)) < threshold:
                break
            found.append(Match(x, y, width, height, score))
            near = slice(max(0, y - down), y + down + 1), slice(max(0, x - across), x + across + 1)
            scores[near] = -2  # below all thresholds
    return found


def _scores(grey: Grey, template: Grey) -> NDArray[np.float32]:
    """Return the score of each place, (H - h + 1, W - w + 1); raises DeadlineExceeded.

    OpenCV computes with float32, and is wrong by up to 1 in nearly white scans, except for samples
    of float32 without IPP: then with float64. It rounds sums of products to float32, so the mean is
    subtracted from the template before.
    """
    (height, width), (rows, columns) = template.shape, grey.shape
    centred = template - np.float32(round(float(template.mean())))
    scores = np.empty((rows - height + 1, columns - width + 1), np.float32)
    across = min(columns, LONGEST, max(2 * width, TILE // (2 * height)))
    down = min(LONGEST, TILE // across)
    ipp = cv2.ipp.useIPP()  # of this thread
    cv2.ipp.setUseIPP(False)
    try:
        for y in range(0, rows - height + 1, down - height + 1):
            for x in range(0, columns - width + 1, across - width + 1):
                stop_if_late()
                tile = grey[y : y + down, x : x + across].astype(np.float32)
                part = cv2.matchTemplate(tile, centred, cv2.TM_CCOEFF_NORMED)
                at = slice(y, y + part.shape[0]), slice(x, x + part.shape[1])
                np.round(part, DIGITS, out=scores[at])
    finally:
        cv2.ipp.setUseIPP(ipp)
    return scores
