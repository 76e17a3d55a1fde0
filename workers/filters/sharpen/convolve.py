"""The convolve filter."""

import functools
import math
import struct
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field

from models.api.numbers import plain_float
from models.domain.image import Pixels
from workers.filters.arithmetic.borders import OPENCV, Border
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.arithmetic.correlate import correlated_bytes, fits_single
from workers.filters.base import Filter, number
from workers.filters.sharpen.small_correlations import (
    SMALL_FLOAT_PASSES,
    SMALL_INT_PASSES,
    small_float_data,
    small_int_data,
    square_side,
)
from workers.kernels.items import Pass, Shape

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


def _rows(given: object) -> object:
    """Return rows of numbers from text; return anything else unchanged.

    Semicolons separate rows and commas separate numbers.
    """
    if not isinstance(given, str):
        return given
    rows = given.split(";", LONGEST_SIDE)
    return [[plain_float(each) for each in row.split(",", LONGEST_SIDE)] for row in rows]


def _rectangular(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows unchanged; raise ValueError if they differ in length."""
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows must be of one length")
    return rows


Kernel = Annotated[
    tuple[Row, ...],
    BeforeValidator(_rows),
    AfterValidator(_rectangular),
    Field(min_length=1, max_length=LONGEST_SIDE),
]


_ANY = (Pass("correlate"),)
"""The pass for weights of any number and size."""


class Convolve(Filter):
    """Sum neighbours with weights of your own; the kernel is not turned around."""

    name: Literal["convolve"] = "convolve"
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

    example: ClassVar = {"name": "convolve", "kernel": [[0, -1, 0], [-1, 5, -1], [0, -1, 0]]}
    alpha_rule: ClassVar = "keep"
    border: ClassVar = "border_mode"
    passes: ClassVar = (*_ANY, *SMALL_INT_PASSES, *SMALL_FLOAT_PASSES[3], *SMALL_FLOAT_PASSES[5])
    tolerance: ClassVar = (
        "within 1 of cv2.filter2D in float64, if the weights' absolute values sum to 2048 at most"
    )

    def apply(self, pixels: Pixels) -> Pixels:
        """Return the correlation, as `cv2.filter2D`, with integer weights in units of 2**-bits,
        half up.

        The definition is our own: (sum(w · x) + floor((bias + 0.5) · 2**bits)) >> bits, clipped to
        0…255. uint8 (H, W, C) to uint8 (H, W, C); alpha is copied.
        """
        colour, alpha = split_alpha(pixels)
        weights, bits = self.fixed()
        shift = _shift(self.bias, bits)
        source = np.ascontiguousarray(colour)
        return join_alpha(correlated_bytes(source, weights, self.border_mode, bits, shift), alpha)

    @property
    def rows_around(self) -> int | None:
        """Return the rows of the kernel; None where the last rows border on the first."""
        return None if self.border_mode == "wrap" else len(self.kernel)

    @property
    def columns_around(self) -> int | None:
        """Return the columns of the kernel, in the same way."""
        return None if self.border_mode == "wrap" else len(self.kernel[0])

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return a pass for few small weights whose sums float32 holds, else the pass for any
        weights.
        """
        if self._in_pairs() is not None:
            return SMALL_INT_PASSES
        weights, bits = self.fixed()
        if not fits_single(weights, bits, _shift(self.bias, bits)):
            return _ANY
        return SMALL_FLOAT_PASSES.get(square_side(weights), _ANY)

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Correlate` with the weights row by row, or the data of a pass for few
        weights.
        """
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
        return _in_pairs(self.kernel, self.divisor, self.bias, self.border_mode)

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
    """Return the weights as int64 and the number of bits of their fraction; cached by the
    parameters.
    """
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
def _in_pairs(kernel: tuple[Row, ...], divisor: float, bias: float, border: Border) -> bytes | None:
    """Return the data of the 3 × 3 integer pass, or None if the weights do not suit it."""
    weights, bits = _fixed(kernel, divisor, bias)
    return small_int_data(weights, _shift(bias, bits), 1 << bits, border)


def _shift(bias: float, bits: int) -> int:
    """Return floor((bias + 0.5) · 2**bits), which also rounds half up."""
    return math.floor(math.ldexp(bias + 0.5, bits))


def _whole(exact: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return weights in units of 2**-bits, rounded half up to int64."""
    return np.floor(exact * 2.0**bits + 0.5).astype(np.int64)
