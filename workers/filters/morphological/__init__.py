"""Morphology: erosion, dilation and the operations that combine both."""

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from models.domain.image import Pixels
from workers.filters.arithmetic.colour import join_alpha, split_alpha
from workers.filters.base import Filter, number
from workers.filters.interruption import stop_if_late
from workers.kernels.items import Grid, Pass, Shape

# The morphology filter: erosion, dilation and their combinations, by `cv2.morphologyEx`.
#
# How the GPU computes them, in passes ("strokes"):
#
# 1. An erosion is a minimum over the neighbourhood and a dilation a maximum. Minima and maxima are
#    exact and idempotent, so windows may overlap: that is the basis of everything below.
# 2. A rectangle is separable: a minimum along rows, then along columns.
# 3. All iterations of a rectangle are a single larger rectangle, as OpenCV computes it too.
# 4. A running minimum costs about three comparisons a sample whatever the window (M. van Herk,
#    1992; J. Gil, M. Werman, 1993): prefix minima and suffix minima of blocks as long as the
#    window.
# 5. `morphology_rows` does that for windows of up to 257 samples; longer runs take several passes.
# 6. Small rectangles (up to 25 samples a side) take a pass over tiles in shared memory instead.
# 7. A cross or an ellipse is a list of runs, a run for each row of the neighbourhood.
# 8. The minimum of a run of n samples is the minimum of two windows of 2**floor(log2(n)) samples,
#    which overlap; long windows come from doubling (a sparse table).
# 9. Iterations of crosses and ellipses are separate passes that alternate between two buffers.
# 10. gradient, tophat and blackhat end with a pass of differences.

# Erosions and dilations by neighbourhoods that cost much, in tiles of bounded work. OpenCV looks
# at every point of a neighbourhood for every sample: an ellipse of 201 by 201 has 31,593 of them,
# and 16 iterations of `blackhat` on 49 megapixels took 20 minutes in one call, which no deadline
# could end. It makes one rectangle of all iterations of a rectangle, of 3,201 samples, which took
# 21 s for 4 megapixels, and 1.9 one after the other. Minima and maxima are exact, so tiles and
# repetitions give the same bytes.

WORK = 1 << 37
"""Samples of a tile times the points of the neighbourhood: one to two seconds."""

_RECTANGLE = 3
"""Points that a sample of the side of a rectangle is worth, which OpenCV computes along rows and
then along columns: 24 ps in place of 8."""

Extreme = Callable[..., Any]

_OPENING, _CLOSING = (cv2.erode, cv2.dilate), (cv2.dilate, cv2.erode)
_ORDERS: Mapping[str, tuple[Extreme, ...]] = {
    "erode": (cv2.erode,),
    "dilate": (cv2.dilate,),
    **{"open": _OPENING, "tophat": _OPENING, "close": _CLOSING, "blackhat": _CLOSING},
    "gradient": (cv2.dilate,),
}


def by_tiles(
    pixels: Pixels, op: str, kernel: NDArray[np.uint8], iterations: int, *, at_once: bool = False
) -> Pixels:
    """Return the result of `cv2.morphologyEx` for uint8 (H, W, C), in this shape.

    `at_once`: OpenCV makes one rectangle of all iterations. Raises DeadlineExceeded soon after the
    deadline of the image that is filtered.
    """
    turns = [iterations] if at_once else [1] * iterations

    def repeated(extreme: Extreme, source: Pixels) -> Pixels:
        for each in turns:
            source = _tiled(extreme, kernel, each, source)
        return source

    source = made = np.ascontiguousarray(pixels)
    for extreme in _ORDERS[op]:
        made = repeated(extreme, made)
    if op == "gradient":
        _subtract(made, repeated(cv2.erode, source), into=made)
    elif op == "tophat":
        _subtract(source, made, into=made)
    elif op == "blackhat":
        _subtract(made, source, into=made)
    return made


def _subtract(larger: Pixels, smaller: Pixels, *, into: Pixels) -> None:
    rows = len(into)
    cv2.subtract(larger.reshape(rows, -1), smaller.reshape(rows, -1), into.reshape(rows, -1))


def _tiled(extreme: Extreme, kernel: NDArray[np.uint8], iterations: int, source: Pixels) -> Pixels:
    """Return erosions or dilations, each tile of them computed with the samples around it."""
    height, width, channels = source.shape
    reach = len(kernel) // 2 * iterations
    points = int(np.count_nonzero(kernel))
    if points == kernel.size:
        points = _RECTANGLE * len(kernel) * iterations
    most = max(1, WORK // (channels * points))
    if height * width <= most:
        stop_if_late()
        made = extreme(source, kernel, iterations=iterations)
        return np.asarray(made, np.uint8).reshape(source.shape)
    rows = min(height, max(reach, math.isqrt(most)))
    columns = min(width, max(reach, most // rows))
    result = np.empty_like(source)
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            stop_if_late()
            first, start = max(0, top - reach), max(0, left - reach)
            seen = source[first : top + rows + reach, start : left + columns + reach]
            made = extreme(np.ascontiguousarray(seen), kernel, iterations=iterations)
            made = made.reshape(seen.shape)
            tile = result[top : top + rows, left : left + columns]
            down, right = top - first, left - start
            tile[:] = made[down : down + len(tile), right : right + tile.shape[1]]
    return result


_SHAPES = {"rect": cv2.MORPH_RECT, "cross": cv2.MORPH_CROSS, "ellipse": cv2.MORPH_ELLIPSE}

ROWS, COLUMNS = Pass("morphology_rows"), Pass("morphology_columns")
"""Passes for rectangles of any size, along rows and along columns."""
RUNS, DIFFERENCE = Pass("morphology_runs"), Pass("morphology_difference")
"""Passes for crosses and ellipses, and for differences of two images."""

SQUARES = (
    Pass("morphology_small", own_grid=Grid(64, 60)),
    Pass("morphology_small", own_grid=Grid(64, 48)),
)
"""Passes for small rectangles: one for a reach of up to 15 samples, one for up to 24."""

SOURCE, RESULT, SCRATCH, SPARE = range(4)
"""The buffers of an image, in the numbering of morphology.cu."""

LONGEST = 256
"""The largest distance, in samples, from the first to the last sample of a window of one ROWS
pass.
"""

LONGEST_SQUARE = 24
"""The same limit for SQUARES."""

STEPS = 34
"""Rows in the table of strokes; at most 16 erosions, 16 dilations and a difference use them."""


class Stroke(NamedTuple):
    """A pass and its row in `struct Morphology`.

    `before` and `length` describe the window in samples: how far it begins before the pixel, and
    its length. `strip` is the number of windows of a row that are computed at once.
    """

    each: Pass
    source: int
    target: int
    dilates: bool = False
    before: int = 0
    length: int = 0
    strip: int = 0


class Morphology(Filter):
    """Shrink or grow light areas, remove small ones, or show the difference that this makes."""

    op: Literal["erode", "dilate", "open", "close", "gradient", "tophat", "blackhat"] = Field(
        "erode", description="operation; the last three show a difference and leave alpha unchanged"
    )
    shape: Literal["rect", "cross", "ellipse"] = Field(
        "rect", description="shape of the neighbourhood"
    )
    size: int = number(3, 3, 201, "px", "side of the neighbourhood")
    iterations: int = number(1, 1, 16, "time", "number of repetitions")

    example: ClassVar = {"op": "open", "size": 5}
    alpha_rule: ClassVar = "plane"
    border: ClassVar = "outside ignored"
    cpu_bytes_per_pixel: ClassVar = (9, 15)
    row_reach: ClassVar = lambda self: 2 * self.size * self.iterations
    passes: ClassVar = (*SQUARES, ROWS, COLUMNS, RUNS, DIFFERENCE)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `cv2.morphologyEx` of uint8 (H, W, C), channel by channel.

        Operations that show a difference copy alpha. Raises DeadlineExceeded soon after the
        deadline.
        """
        differs = self.op in ("gradient", "tophat", "blackhat")
        source, alpha = split_alpha(pixels) if differs else (pixels, None)
        at_once = self.shape == "rect" and self._reach <= LONGEST
        found = by_tiles(source, self.op, self._kernel(), self.iterations, at_once=at_once)
        return join_alpha(found, alpha)

    @property
    def device_passes(self) -> tuple[Pass, ...]:
        """Return at least a pass for every erosion and dilation, and a pass for a difference."""
        return tuple(step.each for step in self._steps())

    def device_data(self, _shape: Shape) -> bytes:
        """Return `struct Morphology`: the strokes, and the rows of the neighbourhood as runs."""
        rows = [np.flatnonzero(row) - self.size // 2 for row in self._kernel()]
        left, right = -min(int(row[0]) for row in rows), max(int(row[-1]) for row in rows)
        levels = max(len(row) for row in rows).bit_length()
        steps = np.zeros((STEPS, 6), "<i4")
        for index, step in enumerate(self._steps()):
            steps[index] = step[1:]
        header = struct.pack("<16x5i12x", self.size, self.size // 2, left, right, levels)
        return header + steps.tobytes() + b"".join(_run(row, left) for row in rows)

    def _kernel(self) -> NDArray[np.uint8]:
        kernel = cv2.getStructuringElement(_SHAPES[self.shape], (self.size, self.size))
        return np.asarray(kernel, np.uint8)

    def _steps(self) -> list[Stroke]:
        """Return the strokes from the source to the result."""
        if self.op == "gradient":
            steps = [*self._chain([True], RESULT), *self._chain([False], SPARE)]
            return [*steps, Stroke(DIFFERENCE, RESULT, SPARE)]
        dilations = [extreme is cv2.dilate for extreme in _ORDERS[self.op]]
        steps = list(self._chain(dilations, RESULT))
        if self.op == "tophat":
            steps.append(Stroke(DIFFERENCE, SOURCE, RESULT))
        elif self.op == "blackhat":
            steps.append(Stroke(DIFFERENCE, RESULT, SOURCE))
        return steps

    def _chain(self, dilations: list[bool], target: int) -> Iterator[Stroke]:
        """Yield erosions and dilations (True) in order; the last result is in `target`."""
        source = SOURCE
        if self.shape == "rect":
            for left, dilates in zip(range(len(dilations))[::-1], dilations, strict=True):
                place = SCRATCH if left and self._small else target
                yield from self._rectangle(source, place, dilates)
                source = place
            return
        each = [dilates for dilates in dilations for _ in range(self.iterations)]
        for left, dilates in zip(range(len(each))[::-1], each, strict=True):
            place = SCRATCH if left % 2 else target
            yield Stroke(RUNS, source, place, dilates)
            source = place

    def _rectangle(self, source: int, target: int, dilates: bool) -> Iterator[Stroke]:
        """Yield the strokes of a rectangle that stands for all iterations."""
        before, reach = self.size // 2 * self.iterations, self._reach
        if self._small:
            each, length = SQUARES[reach > 15], reach + 1
            strip = -(-each.grid.width // -(-each.grid.width // length))
            yield Stroke(each, source, target, dilates, before, length, strip)
            return
        pieces = [min(LONGEST, reach - start) for start in range(0, reach, LONGEST)]
        rest = before
        for left, piece in zip(range(len(pieces))[::-1], pieces, strict=True):
            place = SPARE if left % 2 else SCRATCH
            yield Stroke(ROWS, source, place, dilates, min(rest, piece), piece + 1)
            source, rest = place, max(0, rest - piece)
        yield Stroke(COLUMNS, SCRATCH, target, dilates, before, reach + 1)

    @property
    def _reach(self) -> int:
        """Return the distance from the first to the last sample of a rectangle's side."""
        return (self.size - 1) * self.iterations

    @property
    def _small(self) -> bool:
        return self._reach <= LONGEST_SQUARE


def _run(row: NDArray[np.intp], left: int) -> bytes:
    """Return `struct Run`: a row of the neighbourhood as two windows of a power of two."""
    level = len(row).bit_length() - 1
    return struct.pack("<3h2x", level, row[0] + left, row[-1] + 1 - (1 << level) + left)
