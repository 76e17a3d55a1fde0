"""Filters that sharpen, Pillow's presets, and convolutions with weights of the client's own."""

import functools
import math
import struct
from typing import Annotated, Any, ClassVar, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from pydantic import AfterValidator, BeforeValidator, Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import blend
from workers.filters.arithmetic.sums import OPENCV, Border, correlated_bytes, fits_single
from workers.filters.base import ColourFilter, number, rows_of_text
from workers.filters.separable import FAR, NEAR, ROWS, blurred_levels, device_taps, reach, tile_taps
from workers.kernels.items import Pass, Shape

_IN_TILES = {NEAR: Pass("unsharp_reach_8"), FAR: Pass("unsharp_reach_24")}
_COLUMNS = Pass("unsharp_columns")


class UnsharpMask(ColourFilter):
    """Sharpen by adding the details that a Gaussian blur removes."""

    sigma: float = number(2, 0.1, 100, "px", "standard deviation of the blur")
    amount: float = number(1.5, 0, 10, "ratio", "share of the difference that is added")
    threshold: int = number(0, 0, 255, "levels", "smallest difference that is changed")

    example: ClassVar = {"sigma": 2, "amount": 1.5}
    cpu_bytes_per_pixel: ClassVar = (10, 15)
    border: ClassVar = "replicate"
    row_reach: ClassVar = lambda self: int(4 * self.sigma + 0.5)
    passes: ClassVar = (ROWS, _COLUMNS, *_IN_TILES.values())
    tolerance: ClassVar = "within 1 of skimage.filters.unsharp_mask in float64"

    # G has the 24 fractional bits of its sums, amount has 16, and 12 bits are before the point:
    # float64 holds all 52. `level` and `levels` both include the half that rounds, so it cancels in
    # their difference and stays in the result, which is then truncated.
    def recoloured(self, colour: Pixels) -> Pixels:
        """Return x + amount · (x - G) where |x - G| >= threshold, half up, else x.

        G is the Gaussian blur; G and amount are in fixed point.
        """
        amount = self._amount() / (1 << 16)
        result = np.empty(colour.shape, np.uint8)
        for place, levels in blurred_levels(colour, self.sigma, self.sigma):
            level = colour[place].astype(np.float64)
            level += 0.5
            difference = np.subtract(level, levels, out=levels)
            weak = np.abs(difference) < self.threshold if self.threshold else None
            difference *= amount
            difference += level
            result[place] = np.clip(difference, 0, 255, out=difference)
            if weak is not None:
                np.copyto(result[place], colour[place], where=weak)
        return result

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a single pass for small windows, else a pass along rows and along columns."""
        far = reach(self.sigma, self.sigma)
        return (ROWS, _COLUMNS) if far is None else (_IN_TILES[far],)

    def device_data(self, _shape: Shape) -> bytes:
        """Return the weights, the amount in Q16 and the threshold in levels."""
        if reach(self.sigma, self.sigma):
            return tile_taps(self.sigma, self.sigma, self._amount(), self.threshold)
        return device_taps(self.sigma, self.sigma, 0, self._amount(), self.threshold)

    def _amount(self) -> int:
        return int(self.amount * 65536 + 0.5)


SMALL_FLOAT_PASSES = {side: (Pass(f"correlate_{side}x{side}_float"),) for side in (3, 5)}
"""Passes with float weights, by the side of the square that holds the weights."""

SMALL_INT_PASSES = (Pass("correlate_3x3_int"),)
"""The pass with 3 × 3 integer weights, for data of `small_int_data`."""


def square_side(weights: NDArray[Any]) -> int:
    """Return 3 or 5, the smallest square that holds the weights, or 0 if none does."""
    return next((side for side in SMALL_FLOAT_PASSES if max(weights.shape) <= side), 0)


def small_float_data(
    weights: NDArray[np.float32], offset: float, border: Border, ordered: bool = False
) -> bytes:
    """Return `struct CorrelateSmall`: weights from top to bottom, anchored as in `correlate`,
    padded with zeros.

    `offset` includes the half that rounds; `ordered` keeps Pillow's order of summation.
    """
    room = _squared(weights, square_side(weights), np.dtype("<f4"))
    header = struct.pack("<f3i", offset, [*OPENCV].index(border), ordered, 0)
    return header + room[::-1].tobytes()


# The kernel adds two samples in one 32-bit word, so a sum has 16 bits. It divides by multiplying
# with 2**16 / divisor rounded up (T. Granlund, P. Montgomery, "Division by invariant integers using
# multiplication", 1994). That is exact as long as the excess of the multiplier, times the largest
# dividend, stays below 2**16; `exact` checks it.
def small_int_data(
    weights: NDArray[np.int64], added: int, divisor: int, border: Border
) -> bytes | None:
    """Return `struct CorrelateInt` for floor((sum + added) / divisor), None for other weights."""
    if border != "replicate" or square_side(weights) != 3:
        return None
    least = added + 255 * int(weights.clip(max=0).sum())
    most = added + 255 * int(weights.clip(min=0).sum())
    multiplier, uncut = -(-(1 << 16) // divisor), 256 * divisor - 1
    exact = uncut * (multiplier * divisor - (1 << 16)) < 1 << 16
    if not exact or least < -(1 << 15) or max(most, uncut) >= 1 << 15:
        return None
    both = 0x10001
    header = struct.pack("<3I", (added + (1 << 15)) * both, uncut * both, multiplier)
    return header + _squared(weights, 3, np.dtype("<i4")).tobytes()


def _squared(weights: NDArray[Any], side: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the weights in the middle of a square of zeros, anchored as in `correlate`."""
    rows, columns = weights.shape
    up, left = side // 2 - rows // 2, side // 2 - columns // 2
    room = np.zeros((side, side), kind)
    room[up : up + rows, left : left + columns] = weights
    return room


Kernels = Literal[
    "blur", "contour", "detail", "edge_enhance", "edge_enhance_more", "emboss", "find_edges",
    "sharpen", "smooth", "smooth_more",
]  # fmt: skip
"""The names of Pillow's kernels."""

_KERNELS: dict[str, type[ImageFilter.BuiltinFilter]] = {
    name: getattr(ImageFilter, name.upper()) for name in get_args(Kernels)
}
_MARGIN = 2
"""Pixels around a result that Pillow leaves unfiltered, at most."""

_PAST_HALF = 2.0**-6
"""An offset smaller than the distance from a half to the next possible sum."""

_TIED = ("detail", "smooth_more")
"""Kernels whose divisors (6 and 100) make the order of summation decide ties.

With the divisors 1, 2 and 16 all float32 sums are exact; with 13 none comes near a half.
"""


class Preset(ColourFilter):
    """Apply one of Pillow's predefined small kernels: emboss, contour, detail and others."""

    kernel: Kernels = Field("emboss", description="name of the kernel in Pillow")

    example: ClassVar = {"kernel": "emboss"}
    row_reach: ClassVar = 2
    border: ClassVar = "replicate"
    passes: ClassVar = (*SMALL_INT_PASSES, *SMALL_FLOAT_PASSES[3], *SMALL_FLOAT_PASSES[5])

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return Pillow's `Image.filter` (libImaging/Filter.c), but with filtered margins.

        Sums are float32 in Pillow's order: for each row, the lowest first, w0·x0 + w1·x1 + … from
        left to right; then the sums of rows are added in turn to offset + 0.5. The result is
        truncated. Pillow leaves a margin of 1 or 2 pixels unfiltered; here the border mode is
        replicate.
        """
        source = np.ascontiguousarray(colour)
        found = self._by_pillow(source) if self.kernel in _TIED else self._by_opencv(source)
        return found.reshape(colour.shape)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return the passes of 3 × 3 or of 5 × 5 weights."""
        if _preset_in_pairs(self.kernel) is not None:
            return SMALL_INT_PASSES
        return SMALL_FLOAT_PASSES[len(self._weights())]

    def device_data(self, _shape: Shape) -> bytes:
        """Return the weights, the offset, and whether the order of summation matters."""
        if (whole := _preset_in_pairs(self.kernel)) is not None:
            return whole
        offset: float = _KERNELS[self.kernel].filterargs[2] + 0.5
        return small_float_data(self._weights(), offset, "replicate", self.kernel in _TIED)

    def _weights(self) -> NDArray[np.float32]:
        """Return the weights from top to bottom, divided, float32 (side, side).

        Pillow stores the rows of its kernels from bottom to top.
        """
        size, divisor, _, weights = _KERNELS[self.kernel].filterargs
        upwards = np.array(weights, np.float32).reshape(size) / np.float32(divisor)
        return np.asarray(upwards[::-1], np.float32)

    def _by_opencv(self, colour: Pixels) -> Pixels:
        """Return the sums by OpenCV; `delta` keeps halves from being rounded to even."""
        delta = _KERNELS[self.kernel].filterargs[2] + _PAST_HALF
        border = cv2.BORDER_REPLICATE
        found = cv2.filter2D(colour, -1, self._weights(), delta=delta, borderType=border)
        return np.asarray(found, np.uint8)

    def _by_pillow(self, colour: Pixels) -> Pixels:
        margin, border = _MARGIN, cv2.BORDER_REPLICATE
        wide = cv2.copyMakeBorder(colour, margin, margin, margin, margin, border)
        found = Image.fromarray(np.asarray(wide, np.uint8)).filter(_KERNELS[self.kernel])
        return np.asarray(found)[margin:-margin, margin:-margin]


@functools.cache
def _preset_in_pairs(kernel: str) -> bytes | None:
    """Return the data of the 3 × 3 integer pass, or None; ties become half up in integers."""
    size, divisor, offset, weights = _KERNELS[kernel].filterargs
    if kernel in _TIED:
        return None
    upwards = np.array(weights, np.int64).reshape(size)
    return small_int_data(upwards[::-1], offset * divisor + divisor // 2, divisor, "replicate")


class Sharpen(ColourFilter):
    """Blend the image with a smoothed version, towards it or away from it."""

    factor: float = number(2, 0, 10, "ratio", "0 smooths, 1 changes nothing, above 1 sharpens")

    example: ClassVar = {"factor": 2}
    row_reach: ClassVar = 1
    border: ClassVar = "copied"
    passes: ClassVar = (Pass("sharpen"),)
    packed: ClassVar = ("<f", "factor")

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return Pillow's `ImageEnhance.Sharpness`; the outermost pixels are not smoothed."""
        smooth = Preset(kernel="smooth").apply(colour)
        smooth[[0, -1]], smooth[:, [0, -1]] = colour[[0, -1]], colour[:, [0, -1]]
        return blend(smooth, colour, self.factor)


FINE_BITS, LARGEST_BITS = 24, 30
"""The largest number of bits of a weight's fraction, and of the sum of all weights."""

COARSE_ERROR = 0.25
"""The largest error of a sample, in levels, for which weights may be coarser so that float32 is
exact.
"""

LONGEST_SIDE = 31
"""The largest number of rows of a kernel, and of weights in a row."""

Weight = Annotated[float, Field(ge=-1000, le=1000, strict=True)]
Row = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=LONGEST_SIDE)]


def _rectangular(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows unchanged; raise ValueError if they differ in length."""
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows must be of one length")
    return rows


Kernel = Annotated[
    tuple[Row, ...],
    BeforeValidator(rows_of_text),
    AfterValidator(_rectangular),
    Field(min_length=1, max_length=LONGEST_SIDE),
]


_ANY = (Pass("correlate"),)
"""The pass for weights of any number and size."""


class Convolve(ColourFilter):
    """Sum neighbours with weights of your own; the kernel is not turned around."""

    kernel: Kernel = Field(
        ((1,),),
        description="weights, row by row; that of the pixel itself is at (rows // 2, columns // 2)",
        json_schema_extra={
            "takes": "a list of 1 to 31 equally long rows of 1 to 31 numbers from -1000 to 1000"
        },
    )
    divisor: float = number(1, 0.01, 1_000_000, "ratio", "divisor of the sums")
    bias: float = number(0, -255, 255, "level", "offset, added at the end")
    border_mode: Border = Field(
        "replicate", description="definition of the pixels outside the image"
    )

    example: ClassVar = {"kernel": [[0, -1, 0], [-1, 5, -1], [0, -1, 0]]}
    border: ClassVar = "border_mode"
    row_reach: ClassVar = lambda self: (
        None if self.border_mode == "wrap" else (len(self.kernel), len(self.kernel[0]))
    )
    passes: ClassVar = (*_ANY, *SMALL_INT_PASSES, *SMALL_FLOAT_PASSES[3], *SMALL_FLOAT_PASSES[5])
    tolerance: ClassVar = (
        "within 1 of cv2.filter2D in float64, if the weights' absolute values sum to 2048 at most"
    )

    def recoloured(self, colour: Pixels) -> Pixels:
        """Return the correlation, as `cv2.filter2D`, with weights in units of 2**-bits, half up.

        The definition is our own: (sum(w · x) + floor((bias + 0.5) · 2**bits)) >> bits, clipped to
        0…255.
        """
        weights, bits = self.fixed()
        shift = _shift(self.bias, bits)
        source = np.ascontiguousarray(colour)
        return correlated_bytes(source, weights, self.border_mode, bits, shift)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a pass for few small weights, else the pass for any weights."""
        if self._in_pairs() is not None:
            return SMALL_INT_PASSES
        weights, bits = self.fixed()
        if not fits_single(weights, bits, _shift(self.bias, bits)):
            return _ANY
        return SMALL_FLOAT_PASSES.get(square_side(weights), _ANY)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Correlate` with the weights by row, or data of a pass for few weights."""
        if (whole := self._in_pairs()) is not None:
            return whole
        weights, bits = self.fixed()
        if self.device_passes != _ANY:
            unit = 2.0**-bits
            singles = (weights * unit).astype(np.float32)
            return small_float_data(singles, _shift(self.bias, bits) * unit, self.border_mode)
        border = [*OPENCV].index(self.border_mode)
        header = struct.pack("<q4i", _shift(self.bias, bits), bits, *weights.shape, border)
        return header + bytes(weights.astype("<i4").data)

    def _in_pairs(self) -> bytes | None:
        return _kernel_in_pairs(self.kernel, self.divisor, self.bias, self.border_mode)

    def fixed(self) -> tuple[NDArray[np.int64], int]:
        """Return the weights as int64 (rows, columns), and the number of bits of their fraction."""
        return _fixed(self.kernel, self.divisor, self.bias)


# Weights have 24 fractional bits; fewer if their absolute sum would not fit 30 bits, and fewer if
# they are multiples of a larger unit. Then the smallest loss is searched: the largest number of
# bits for which float32 holds all sums, provided that no sample can be off by more than
# COARSE_ERROR levels. The worst sample is white where errors have one sign and black where they
# have the other.
@functools.lru_cache(64)
def _fixed(kernel: tuple[Row, ...], divisor: float, bias: float) -> tuple[NDArray[np.int64], int]:
    """Return the weights as int64, and the number of bits of their fraction."""
    exact = np.array(kernel, np.float64) / divisor
    bits = min(FINE_BITS, LARGEST_BITS - math.frexp(float(np.abs(exact).sum()))[1])
    weights = _whole(exact, bits)
    while bits > 0 and not (weights & 1).any():
        weights, bits = weights >> 1, bits - 1
    for fewer in range(bits, -1, -1):
        coarse = _whole(exact, fewer)
        if fits_single(coarse, fewer, _shift(bias, fewer)):
            error = coarse * 2.0**-fewer - exact
            worst = 255 * max(error.clip(min=0).sum(), -error.clip(max=0).sum())
            return (coarse, fewer) if worst <= COARSE_ERROR else (weights, bits)
    return weights, bits


@functools.lru_cache(64)
def _kernel_in_pairs(
    kernel: tuple[Row, ...], divisor: float, bias: float, border: Border
) -> bytes | None:
    """Return the data of the 3 × 3 integer pass, or None if the weights do not suit it."""
    weights, bits = _fixed(kernel, divisor, bias)
    return small_int_data(weights, _shift(bias, bits), 1 << bits, border)


def _shift(bias: float, bits: int) -> int:
    """Return floor((bias + 0.5) · 2**bits), which also rounds half up."""
    return math.floor(math.ldexp(bias + 0.5, bits))


def _whole(exact: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return weights in units of 2**-bits, rounded half up to int64."""
    return np.floor(exact * 2.0**bits + 0.5).astype(np.int64)
