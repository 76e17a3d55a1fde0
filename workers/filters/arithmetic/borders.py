"""What lies outside an image: the one vocabulary of Darkroom, as OpenCV's constants."""

from collections.abc import Mapping
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Border = Literal["replicate", "reflect", "mirror", "wrap", "constant"]
"""aaa|abcd|ddd, cba|abcd|dcb, dcb|abcd|cba, bcd|abcd|abc, 000|abcd|000.

Names differ: "reflect" is numpy's "symmetric", "mirror" is numpy's and torch's "reflect".
"""

Places = NDArray[np.intp]
"""Along one axis of an image; -1 is outside."""

OPENCV: Mapping[Border, int] = {
    "replicate": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
    "constant": cv2.BORDER_CONSTANT,
}

NUMPY: Mapping[Border, Literal["edge", "symmetric", "reflect", "wrap"]] = {
    "replicate": "edge",
    "reflect": "symmetric",
    "mirror": "reflect",
    "wrap": "wrap",
}


def places(length: int, side: int, border: Border) -> Places:
    """What `side` neighbours of all pixels of a line are: length + side - 1 places.

    A pixel is the one at side // 2 of its neighbours.
    """
    margins = (side // 2, side - 1 - side // 2)
    if border == "constant":
        return np.pad(np.arange(length), margins, constant_values=-1)
    return np.pad(np.arange(length), margins, NUMPY[border])
