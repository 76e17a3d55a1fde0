"""Border modes: the rules that define pixels outside an image, and their names in OpenCV and
numpy.
"""

from collections.abc import Mapping
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

Border = Literal["replicate", "reflect", "mirror", "wrap", "constant"]
"""aaa|abcd|ddd, cba|abcd|dcb, dcb|abcd|cba, bcd|abcd|abc, 000|abcd|000, in this order.

The names differ between libraries: our "reflect" is numpy's "symmetric", and our "mirror" is the
"reflect" of numpy and torch.
"""

Places = NDArray[np.intp]
"""Indices along one axis of an image, int64; -1 stands for a pixel outside a constant border."""

OPENCV: Mapping[Border, int] = {
    "replicate": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
    "constant": cv2.BORDER_CONSTANT,
}
"""The border modes as constants of OpenCV.

The order of the keys is the numbering of `enum Border` in kernels/headers/borders.cuh.
"""

NUMPY: Mapping[Border, Literal["edge", "symmetric", "reflect", "wrap"]] = {
    "replicate": "edge",
    "reflect": "symmetric",
    "mirror": "reflect",
    "wrap": "wrap",
}
"""The border modes as modes of `numpy.pad`; "constant" is handled by `places`."""


def places(length: int, side: int, border: Border) -> Places:
    """Return the index of every pixel that windows of `side` pixels along a line read.

    The result has length + side - 1 entries. The window of pixel i is the slice i … i + side - 1,
    and the pixel itself is entry side // 2 of it.
    """
    margins = (side // 2, side - 1 - side // 2)
    if border == "constant":
        return np.pad(np.arange(length), margins, constant_values=-1)
    return np.pad(np.arange(length), margins, NUMPY[border])
