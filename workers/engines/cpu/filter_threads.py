"""The threads of OpenCV, over which it spreads one call at a time, whichever thread makes it."""

import cv2
import numpy as np

SIDE = 1024
"""Pixels of an image that OpenCV spreads over its threads; one of 256 × 256 it does not."""


def start_filter_threads() -> None:
    """Start the threads of OpenCV with the priority of the calling thread.

    OpenCV starts them with the first image that is large enough and keeps them, and Linux gives a
    thread the priority of the one that starts it. If that were a thread of the background, filters
    of requests would be computed with a low priority for as long as the process runs.
    """
    cv2.LUT(np.zeros((SIDE, SIDE), np.uint8), np.arange(256, dtype=np.uint8))
