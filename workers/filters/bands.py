"""Apply filters to large images band by band, which bounds their memory for any image size.

Most filters compute a pixel of their result from few rows and columns around it
(`Filter.around`). A band of rows, with these rows above and below it,
then gives the same bytes as the whole image. If the caller needs the input no longer, the result
takes its place.

Bands are made of rows, which are contiguous in memory. They are made of columns where rows are
longer than `WIDEST`, because filters take temporary arrays of at least a row, and where a band of
rows would take more than `BAND_BYTES` and a band of columns takes less. The shorter side of an
image of 50 megapixels has at most 7,071 pixels, so a band across it is never large.

Filters that depend on the whole image, or on the place of a pixel, are not divided here. Some write
their results piece by piece (`PieceFilter`), and may then overwrite the input as well.
`memory` counts all of this, and images for which it is too much are refused before the work begins.
"""

from dataclasses import dataclass

import numpy as np

from models.domain.image import Pixels
from workers.filters.base import CountingFilter, Filter, PieceFilter
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Shape

LARGE = 4 << 20
"""Pixels of an image from which filters are applied in bands; smaller ones take one call."""

WIDEST = 1 << 16
"""Longest row, in pixels, of which temporary arrays take as little as `arithmetic/sums.py`
assumes. A JPEG has no longer row."""

BAND_BYTES = 64 << 20
"""Estimated bytes that the work on a band takes, unless the lines around it need more."""

_LINE = 200
"""Bytes per pixel of the longest side that undivided work takes beside its estimate, if that side
is longer than `WIDEST`: some float64 arrays of four samples."""

_COUNTING = 2
"""Bytes per pixel that counting takes at most: a plane of lumas, and the one that OpenCV makes."""

_PER_PIXEL = 1000
"""Side of a square, in pixels, by which the bytes per pixel of a filter are computed."""


@dataclass(frozen=True, slots=True)
class _Division:
    """Bands of `size` lines, which are rows (axis 0) or columns (axis 1).

    A line of the result depends on `reach` lines on each side. `memory` is the bytes that the work
    on a band takes.
    """

    axis: int
    size: int
    reach: int
    memory: int


def apply(step: Filter, pixels: Pixels, *, overwrite: bool) -> Pixels:
    """Return the result of a step, uint8 (H, W, C).

    `overwrite`: nothing else needs the input, so that the result may be written over it.
    """
    overwrite = overwrite and pixels.flags.writeable and pixels.flags.c_contiguous
    in_place = overwrite and overwrites(step, pixels.shape)
    if (division := _division(step, pixels.shape)) is None:
        if not (in_place and isinstance(step, PieceFilter)):
            return step.apply(pixels)
        step.write(pixels, pixels)
        return pixels
    by_band = step.counted(pixels) if isinstance(step, CountingFilter) else step
    result = pixels if in_place else np.empty(step.shape_after(pixels.shape), np.uint8)
    _apply_in_bands(by_band, division, pixels, result)
    return result


def memory(step: Filter, shape: Shape, *, overwrite: bool) -> int:
    """Return the bytes that `apply` takes at a time beside the input, by estimate.

    Raises InvalidParameter where `shape_after` raises it.
    """
    height, width, _ = shape
    rows, columns, channels = step.shape_after(shape)
    result = 0 if overwrite and overwrites(step, shape) else rows * columns * channels
    if (division := _division(step, shape)) is not None:
        counting = _COUNTING * height * width if isinstance(step, CountingFilter) else 0
        return max(division.memory, counting) + result
    longest = max(height, width)
    whole = step.memory(shape) + (_LINE * longest if longest > WIDEST else 0)
    return whole if result else max(0, whole - rows * columns * channels)


def overwrites(step: Filter, shape: Shape) -> bool:
    """Return whether `apply` puts the result in the place of an input that may be overwritten."""
    if isinstance(step, PieceFilter):
        return _is_large(shape)
    return _division(step, shape) is not None and step.shape_after(shape) == shape


def _apply_in_bands(step: Filter, by: _Division, pixels: Pixels, result: Pixels) -> None:
    """Write the result of each band into `result`, which may be `pixels`."""
    before = _lines(pixels, 0, 0, by.axis)
    for first in range(0, pixels.shape[by.axis], by.size):
        stop_if_late()
        last = min(first + by.size, pixels.shape[by.axis])
        seen = _lines(pixels, first, last + by.reach, by.axis)
        # The lines before were overwritten by their results, so their input was kept.
        kept = before.shape[by.axis]
        band = np.concatenate((before, seen), by.axis) if kept else np.ascontiguousarray(seen)
        made = step.apply(band)
        end = kept + last - first
        before = _lines(band, max(0, end - by.reach), end, by.axis).copy()
        _lines(result, first, last, by.axis)[:] = _lines(made, kept, end, by.axis)


def _lines(pixels: Pixels, start: int, stop: int, axis: int) -> Pixels:
    """Return a view of some rows (axis 0) or columns (axis 1)."""
    return pixels[start:stop] if axis == 0 else pixels[:, start:stop]


def _is_large(shape: Shape) -> bool:
    height, width, _ = shape
    return height * width >= LARGE or max(height, width) > WIDEST


def _division(step: Filter, shape: Shape) -> _Division | None:
    """Return the bands of an image, or None where the whole image is filtered at once."""
    around = (0, 0) if isinstance(step, CountingFilter) else step.around
    if not _is_large(shape) or around is None:
        return None
    rows = _bands(step, shape, 0, around[0])
    if shape[1] <= WIDEST and rows.memory <= BAND_BYTES:
        chosen = rows
    else:
        columns = _bands(step, shape, 1, around[1])
        chosen = columns if shape[1] > WIDEST or columns.memory < rows.memory else rows
    return chosen if chosen.size < shape[chosen.axis] else None


def _bands(step: Filter, shape: Shape, axis: int, reach: int) -> _Division:
    """Return bands of as many lines as fit, at least as many as the lines around them on a side.

    With fewer, the work on lines that belong to neighbouring bands would be more than three times
    the work itself. No row of a band of columns is longer than `WIDEST`, without the columns around
    it.
    """
    across, channels = shape[1 - axis], shape[2]
    line = across * (step.memory((_PER_PIXEL, _PER_PIXEL, channels)) // _PER_PIXEL**2 + channels)
    fitting = BAND_BYTES // line - 2 * reach
    size = max(1, reach, min(fitting, WIDEST) if axis else fitting)
    return _Division(axis, size, reach, (size + 2 * reach) * line)
