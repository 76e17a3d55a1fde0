"""Apply filters to large images band by band, which bounds their memory for any image size.

Most filters compute a row of their result from a few rows of their input (`Filter.rows_around`).
A band of rows, with these rows above and below it, then gives the same bytes as the whole image.
If the caller needs the input no longer, the result takes its place.
"""

import numpy as np

from models.domain.image import Pixels
from workers.filters.base import RowStep
from workers.filters.interruption import stop_if_late
from workers.filters.lookup_tables import ChainStep
from workers.kernels.items import Shape

LARGE = 8 << 20
"""Pixels of an image from which filters are applied in bands; smaller ones take one call."""

BAND_BYTES = 64 << 20
"""Estimated bytes that the work on a band takes, unless the rows around it need more."""

_COUNTING = 2
"""Bytes per pixel that counting takes at most: a plane of lumas, and the one that OpenCV makes."""

_PER_PIXEL = 1000
"""Side of a square, in pixels, by which the bytes per pixel of a filter are computed."""


def apply(step: ChainStep, pixels: Pixels, *, overwrite: bool) -> Pixels:
    """Return the result of one step, uint8 (H, W, C).

    `overwrite`: nothing else needs the input, so that the result may be written over it.
    """
    if (rows := _rows(step, pixels.shape)) is None:
        return step.apply(pixels)
    by_rows: RowStep = step.counted(pixels) if step.counts_first else step
    reach, shape = by_rows.rows_around or 0, step.shape_after(pixels.shape)
    in_place = overwrite and shape == pixels.shape and pixels.flags.writeable
    result = pixels if in_place else np.empty(shape, np.uint8)
    above = pixels[:0]
    for top in range(0, len(pixels), rows):
        stop_if_late()
        bottom = min(top + rows, len(pixels))
        seen = pixels[top : bottom + reach]
        # The rows above were overwritten by their results, so their input was kept.
        band = np.concatenate((above, seen)) if len(above) else seen
        first, last = len(above), len(above) + bottom - top
        made = by_rows.apply(band)
        above = band[max(0, last - reach) : last].copy()
        result[top:bottom] = made[first:last]
    return result


def memory(step: ChainStep, shape: Shape, *, overwrite: bool) -> int:
    """Return the bytes that `apply` takes at a time beside the input, by estimate.

    Raises InvalidParameter where `shape_after` raises it.
    """
    if (rows := _rows(step, shape)) is None:
        return step.memory(shape)
    _, width, channels = shape
    after = step.shape_after(shape)
    band = (rows + 2 * (step.rows_around or 0)) * width * (_per_pixel(step, channels) + channels)
    counting = _COUNTING * shape[0] * width if step.counts_first else 0
    return max(band, counting) + (
        0 if overwrite and after == shape else after[0] * after[1] * after[2]
    )


def _rows(step: ChainStep, shape: Shape) -> int | None:
    """Return the rows of a band, or None where the whole image is filtered at once.

    They are at least as many as those around them on one side: with fewer, the work on rows that
    belong to other bands would be more than three times the work itself.
    """
    height, width, channels = shape
    reach = 0 if step.counts_first else step.rows_around
    if height * width < LARGE or reach is None:
        return None
    fitting = BAND_BYTES // (width * (_per_pixel(step, channels) + channels)) - 2 * reach
    rows = max(1, reach, fitting)
    return rows if rows < height else None


def _per_pixel(step: ChainStep, channels: int) -> int:
    return step.memory((_PER_PIXEL, _PER_PIXEL, channels)) // _PER_PIXEL**2
