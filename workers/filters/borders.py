"""What lies outside an image: the one vocabulary of Darkroom, as OpenCV's constants."""

from collections.abc import Mapping
from typing import Literal

import cv2

Border = Literal["replicate", "reflect", "mirror", "wrap", "constant"]
"""aaa|abcd|ddd, cba|abcd|dcb, dcb|abcd|cba, bcd|abcd|abc, 000|abcd|000.

Names differ: "reflect" is numpy's "symmetric", "mirror" is numpy's and torch's "reflect".
"""

OPENCV: Mapping[Border, int] = {
    "replicate": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT,
    "mirror": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
    "constant": cv2.BORDER_CONSTANT,
}
