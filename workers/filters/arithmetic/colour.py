"""The common rules of filters on colour: alpha stays, blending truncates as Pillow's does."""

import functools
import struct
from collections.abc import Callable
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.tiling import STRIP_SAMPLES, bands
from workers.kernels.items import LINE, Pass

Sample = TypeVar("Sample", np.uint8, np.float32)

LEVELS = np.arange(256, dtype=np.uint8).reshape(256, 1, 1)
"""All levels of a sample, as an image."""


def split_alpha(pixels: Pixels) -> tuple[Pixels, Pixels | None]:
    """The colour planes and the alpha plane (H, W, 1), None without one."""
    if pixels.shape[2] < 4:
        return pixels, None
    colour = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGBA2RGB)
    return np.asarray(colour, np.uint8), pixels[:, :, 3:]


def join_alpha(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """The reverse of `split_alpha`, C-contiguous."""
    whole = colour if alpha is None else cv2.merge([colour, np.ascontiguousarray(alpha)])
    return np.ascontiguousarray(whole, np.uint8)


def repeated(plane: NDArray[Sample], channels: int) -> NDArray[Sample]:
    """A plane (H, W) as an image of `channels` equal channels, 1 or 3."""
    if channels == 1:
        return plane[..., None]
    return np.asarray(cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB), plane.dtype)


def as_grey(grey: NDArray[np.uint8], pixels: Pixels) -> Pixels:
    """A plane (H, W) with the channels, and the alpha, of an image."""
    colour, alpha = split_alpha(pixels)
    return join_alpha(repeated(np.asarray(grey, np.uint8), colour.shape[2]), alpha)


def by_pillow(pixels: Pixels, function: Callable[[Image.Image], Image.Image]) -> Pixels:
    """What Pillow makes of the colours; alpha as it is."""
    colour, alpha = split_alpha(pixels)
    image = Image.fromarray(colour[:, :, 0] if colour.shape[2] == 1 else colour)
    return join_alpha(np.asarray(function(image)).reshape(colour.shape), alpha)


def rounded_table(levels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """What 256 levels become: half-up, 0…255."""
    return np.clip(np.floor(levels + 0.5), 0, 255).astype(np.uint8)


def blend(degenerate: Pixels | int, pixels: Pixels, factor: float) -> Pixels:
    """Pillow's `Image.blend`: clip(trunc(d + f · (x - d))) in float32, each step rounded.

    `degenerate` is one level or an image of the same shape.
    """
    if factor == 1:
        return pixels.copy()
    if not isinstance(degenerate, int) and (offset := _offset(factor)) is not None:
        weighted = cv2.addWeighted(pixels, factor, degenerate, 1 - factor, offset)
        return np.asarray(weighted, np.uint8).reshape(pixels.shape)
    return _step_by_step(degenerate, pixels, factor)


def _step_by_step(degenerate: Pixels | int, pixels: Pixels, factor: float) -> Pixels:
    result = np.empty(pixels.shape, np.uint8)
    for rows in bands(len(pixels), pixels[0].size, STRIP_SAMPLES):
        base = np.asarray(degenerate if isinstance(degenerate, int) else degenerate[rows])
        base = base.astype(np.float32)
        mixed = pixels[rows].astype(np.float32)
        mixed -= base
        mixed *= np.float32(factor)
        mixed += base
        result[rows] = np.clip(mixed, 0, 255, out=mixed)
    return result


@functools.lru_cache(256)
def _offset(factor: float) -> float | None:
    """What makes `cv2.addWeighted` blend as Pillow does, whose steps of float32 are others.

    It rounds f·x + (1 - f)·d + offset to the nearest. Of all pairs of levels it must give Pillow's
    result, and with more room than any roundings of float32 can take. There is no such offset for
    a tenth of the factors: Pillow's hundredfold of 1.3, for one, is 130 and its ninetyfold 116.
    """
    levels = np.broadcast_to(LEVELS, (256, 256, 1))
    base = np.ascontiguousarray(levels.swapaxes(0, 1))
    blended = _step_by_step(base, levels, factor).astype(np.float64)
    missing = blended - (np.float64(factor) * levels + np.float64(1 - factor) * base)
    low = np.max(missing, initial=-np.inf, where=blended > 0) - 0.5
    high = np.min(missing, initial=np.inf, where=blended < 255) + 0.5
    room = 2.0**-22 * 256 * (1 + factor + abs(1 - factor))
    return float(low + high) / 2 if high - low > 2 * room else None


def mixed(colour: Pixels, matrix: NDArray[np.int64], bits: int) -> Pixels:
    """Colours through a matrix (3, 4) in units of 2**-bits, half-up; grey becomes RGB.

    The last column is added. Exact: in float32 if that can hold the sums, else in float64.
    """
    if colour.shape[2] == 1:
        colour = repeated(np.ascontiguousarray(colour[:, :, 0]), 3)
    exact = matrix.astype(np.float64)
    exact[:, 3] += 1 << (bits - 1)
    result, single = np.empty(colour.shape, np.uint8), _fits_single(exact, bits)
    if single:
        exact[:, 3] -= 1 << (bits - 9)
    exact *= 2.0 ** (8 - bits if single else -bits)
    for rows in bands(len(colour), colour[0].size, STRIP_SAMPLES):
        if single:
            fine = np.asarray(cv2.transform(colour[rows].astype(np.uint16), exact), np.uint16)
            result[rows] = np.right_shift(fine, 8, out=fine)
        else:
            sums = np.asarray(cv2.transform(colour[rows].astype(np.float64), exact))
            result[rows] = np.clip(sums, 0, 255, out=sums)
    return result


def _fits_single(matrix: NDArray[np.float64], bits: int) -> bool:
    """Whether OpenCV's sums of uint16, as 256ths of a level less a half, floor as exact ones do.

    It adds in float32, in any order, less 2**15, rounds to the nearest, ties to even, and cuts off
    at 0 and 65535: a whole level is such a tie, and what is below it stays below. No partial sum
    is rounded if all are integers of 24 bits, in units of 2**-bits for `bits` of 16. Nor does it
    matter where nothing is negative: what is rounded then is beyond 255 already.
    """
    largest = matrix * (255, 255, 255, 1)
    above, below = np.maximum(largest, 0).sum(1), np.maximum(-largest, 0).sum(1)
    exact = (above < 1 << bits + 8) & (below < 1 << bits + 7)
    return bits == 16 and bool((exact | (below == 0)).all())


COUNTS = tuple(Pass(f"count_{what}", 8 * LINE, flat=True) for what in ("levels", "lumas"))
"""Count every colour's levels, or the lumas', on a GPU; their data are `counted`."""

THROUGH_TABLES = Pass("through_tables", LINE, flat=True)
"""Every colour through its own table, after one of those that count."""


def counted(*parameters: int) -> bytes:
    """`struct Counted` of histogram_scan.cu: up to four parameters, and room for counts and
    tables.
    """
    return struct.pack("<4I", *parameters, *[0] * (4 - len(parameters))) + bytes(3 * 256 * 5)


TABLE_PASSES = (Pass("through_table", LINE, flat=True),)
"""`through_table` on a GPU; its data are the table's bytes."""


def through_table(pixels: Pixels, table: NDArray[np.uint8]) -> Pixels:
    """Every colour sample through a table of 256 levels; alpha as it is.

    That of complements is one exclusive or, several times as fast as looking up.
    """
    source, one = np.ascontiguousarray(pixels), table.reshape(1, 256)
    if np.array_equal(table.ravel(), 255 - LEVELS.ravel()):
        alone = pixels.shape[2] < 4
        return ~source if alone else (source.view("<u4") ^ 0xFFFFFF).view(np.uint8)
    tables = cv2.merge([one] * 3 + [LEVELS.reshape(1, 256)]) if pixels.shape[2] == 4 else one
    return np.asarray(cv2.LUT(source, tables), np.uint8).reshape(pixels.shape)
