"""Helpers for filters of colours: separate alpha from colours, blend as Pillow does, apply tables
and matrices.
"""

import functools
import struct
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.domain.image import Pixels
from workers.filters.arithmetic.sums import STRIP_SAMPLES, bands, pieces
from workers.kernels.items import Pass

Sample = TypeVar("Sample", np.uint8, np.float32)

LEVELS = np.arange(256, dtype=np.uint8).reshape(256, 1, 1)
"""All 256 levels of a sample as an image, uint8 (256, 1, 1)."""


def split_alpha(pixels: Pixels) -> tuple[Pixels, Pixels | None]:
    """Split uint8 (H, W, C) into its colours (H, W, 1 or 3) and its alpha (H, W, 1), or None."""
    if pixels.shape[2] < 4:
        return pixels, None
    colour = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGBA2RGB)
    return np.asarray(colour, np.uint8), pixels[:, :, 3:]


def join_alpha(colour: Pixels, alpha: Pixels | None) -> Pixels:
    """Join colours and alpha, the reverse of `split_alpha`: uint8 (H, W, C), C-contiguous."""
    whole = colour if alpha is None else cv2.merge([colour, np.ascontiguousarray(alpha)])
    return np.ascontiguousarray(whole, np.uint8)


def repeated(plane: NDArray[Sample], channels: int) -> NDArray[Sample]:
    """Return a plane (H, W) as an image (H, W, channels) of equal channels, 1 or 3."""
    if channels == 1:
        return plane[..., None]
    return np.asarray(cv2.cvtColor(plane, cv2.COLOR_GRAY2RGB), plane.dtype)


def as_grey(grey: NDArray[np.uint8], pixels: Pixels) -> Pixels:
    """Return a grey plane, uint8 (H, W), with the channels and the alpha of an image (H, W, C)."""
    colour, alpha = split_alpha(pixels)
    return join_alpha(repeated(np.asarray(grey, np.uint8), colour.shape[2]), alpha)


def rounded_table(levels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Round 256 levels in float64 half up and clip them to 0…255, as uint8 of the same shape."""
    return np.clip(np.floor(levels + 0.5), 0, 255).astype(np.uint8)


def blend(degenerate: Pixels | int, pixels: Pixels, factor: float) -> Pixels:
    """Return Pillow's `Image.blend` (libImaging/Blend.c): clip(trunc(d + f · (x - d))) as uint8.

    Every step is rounded to float32. `degenerate` is a level, or an image of the shape of `pixels`.
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
    """Return the offset with which `cv2.addWeighted` equals Pillow's blend, or None.

    OpenCV rounds f·x + (1 - f)·d + offset to the nearest integer, whereas Pillow truncates after
    three roundings to float32. A call of OpenCV is several times as fast, so it is worth a search:
    for each of the 65,536 pairs of levels the offset has to lie in an interval, and all intervals
    must have a common part that is wider than any rounding error of float32. About a tenth of all
    factors has no offset of this kind; for 1.3, Pillow computes 100 · 1.3 = 130 but 90 · 1.3 = 116.
    """
    levels = np.broadcast_to(LEVELS, (256, 256, 1))
    base = np.ascontiguousarray(levels.swapaxes(0, 1))
    blended = _step_by_step(base, levels, factor).astype(np.float64)
    # OpenCV gives `blended` if the offset is within a half of `missing`. Where the result is 0 or
    # 255 it was clipped, so such a pair bounds the offset on one side alone.
    missing = blended - (np.float64(factor) * levels + np.float64(1 - factor) * base)
    low = np.max(missing, initial=-np.inf, where=blended > 0) - 0.5
    high = np.min(missing, initial=np.inf, where=blended < 255) + 0.5
    room = 2.0**-22 * 256 * (1 + factor + abs(1 - factor))
    return float(low + high) / 2 if high - low > 2 * room else None


def mixed(colour: Pixels, matrix: NDArray[np.int64], bits: int) -> Pixels:
    """Multiply colours by a matrix (3, 4) in units of 2**-bits, half up; return uint8 (H, W, 3).

    The last column is added; a grey image becomes RGB first. The sums are exact: they are computed
    in float32 where it holds them, else in float64.
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
    """Return whether `cv2.transform` on uint16, in float32, gives the floor of the exact sums.

    In that mode the matrix yields 256ths of a level, less a half. OpenCV subtracts 2**15, adds in
    float32 in any order, rounds to the nearest, ties to even, and clips to 0…65535. A whole level
    is a tie too and rounds up to itself; anything below it stays below. No partial sum is rounded
    if all of them are integers of at most 24 bits, in units of 2**-bits with `bits` of 16. If no
    weight is negative, a sum that is rounded is beyond 255 anyway.
    """
    largest = matrix * (255, 255, 255, 1)
    above, below = np.maximum(largest, 0).sum(1), np.maximum(-largest, 0).sum(1)
    exact = (above < 1 << bits + 8) & (below < 1 << bits + 7)
    return bits == 16 and bool((exact | (below == 0)).all())


COUNTS = tuple(Pass(f"histogram_{what}") for what in ("levels", "lumas"))
"""The passes that count levels (one histogram a channel) or lumas on a GPU.

Their data are `counted`.
"""

THROUGH_TABLES = Pass("apply_tables")
"""The pass that maps every colour by its own table, after one of the passes that count."""


def counted(*parameters: int) -> bytes:
    """Return `struct HistogramData`: four uint32 parameters and room for counts and tables."""
    return struct.pack("<4I", *parameters, *[0] * (4 - len(parameters))) + bytes(3 * 256 * 5)


TABLE_PASSES = (Pass("apply_table"),)
"""The pass that maps all colours by one table; its data are the 256 bytes of the table."""


def through_table(pixels: Pixels, table: NDArray[np.uint8]) -> Pixels:
    """Map every colour sample of uint8 (H, W, C) by a table of 256 levels; alpha is copied.

    The table of complements (255 - x) is an exclusive or, which is several times as fast as a
    look-up.
    """
    source, one = np.ascontiguousarray(pixels), table.reshape(1, 256)
    if np.array_equal(table.ravel(), 255 - LEVELS.ravel()):
        alone = pixels.shape[2] < 4
        # Little-endian: the three low bytes of a pixel are its colours, the high byte is alpha.
        return ~source if alone else (source.view("<u4") ^ 0xFFFFFF).view(np.uint8)
    tables = cv2.merge([one] * 3 + [LEVELS.reshape(1, 256)]) if pixels.shape[2] == 4 else one
    return np.asarray(cv2.LUT(source, tables), np.uint8).reshape(pixels.shape)


# Luma by the one formula of Darkroom: (19595 R + 38470 G + 7471 B + 32768) >> 16, in integers.
# These are the weights of ITU-R BT.601 in 16 bits, as in Pillow's libImaging/Convert.c (`L24`).

LUMA_BITS = 16
LUMA_MATRIX = np.array([[19595, 38470, 7471, 0]] * 3)
"""The matrix, int64 (3, 4), that puts the luma into every channel; the last column is added."""


_CONVERTED = 1 << 22
"""Samples that are converted at a time."""


def luma(pixels: Pixels) -> NDArray[np.uint8]:
    """Return the luma of uint8 (H, W, C) as uint8 (H, W); alpha is ignored.

    Pillow's `convert("L")` computes it.
    """
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    # Pillow copies what it converts, in 4 bytes per pixel.
    lumas = [np.asarray(Image.fromarray(each).convert("L")) for each in pieces(pixels, _CONVERTED)]
    plane = lumas[0] if len(lumas) == 1 else np.concatenate(lumas, 1)
    return plane.reshape(pixels.shape[:2])


def lumas(colour: Pixels) -> Pixels:
    """Return the luma of colours (H, W, 3) in every channel, uint8; a grey image is returned as it
    is.

    A matrix product is faster than a conversion and three copies.
    """
    return colour if colour.shape[2] == 1 else mixed(colour, LUMA_MATRIX, LUMA_BITS)
