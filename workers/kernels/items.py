"""The layout of a launch: its images as kernels read them, and the blocks that each image needs.

A kernel is `void NAME(const Item *items, const u32 *starts, int n)`, launched as a one-dimensional
grid of starts[n] blocks of 256 threads. Images of any size, channels and parameters share a launch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.launches import Grid, grid_of

THREADS = 256
"""Threads of every block."""

ITEM = np.dtype(
    [
        ("src", "<u8"),
        ("dst", "<u8"),
        ("scratch", "<u8"),
        ("data", "<u8"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("channels", "<i4"),
        ("step", "<i4"),
    ]
)
"""One image of a launch: addresses on the device, and the shape of the source.

src, dst and scratch are aligned to 256 bytes, data to 16. Images are C-contiguous, and src differs
from dst. scratch has the size that the filter's `device_scratch` returns. data is writable; before
the first pass it holds the bytes of the filter's `device_data`. `step` is the index of the launch
among the filter's passes.
"""

Shape = tuple[int, int, int]
"""Height and width in pixels, and channels."""


class Pass(NamedTuple):
    """A launch of a filter.

    `channels`: only images with these numbers of channels get blocks. `of_result`: the blocks cover
    the result instead of the source. `own_grid` is for the few kernels whose grid depends on
    parameters; all further passes have the grid that the CUDA text states.
    """

    kernel: str
    channels: tuple[int, ...] = ()
    of_result: bool = False
    own_grid: Grid | None = None

    @property
    def grid(self) -> Grid:
        """Return how the blocks of this launch cover an image."""
        return self.own_grid or grid_of(self.kernel)

    def blocks(self, shape: Shape) -> int:
        """Return how many blocks an image of this shape needs."""
        return int(starts(self, [shape])[1])


def starts(pass_: Pass, shapes: Sequence[Shape]) -> NDArray[np.uint32]:
    """Return the first block of every image, then the number of all blocks: n + 1 prefix sums,
    uint32.
    """
    height, width, channels = np.array(shapes, np.int64).reshape(-1, 3).T
    grid = pass_.grid
    if grid.each:
        blocks = np.full(len(shapes), grid.each, np.int64)
    elif grid.flat:
        blocks = -(-height * width * channels // grid.width)
    else:
        blocks = -(-width // grid.width) * -(-height // grid.height)
    if pass_.channels:
        blocks = np.where(np.isin(channels, pass_.channels), blocks, 0)
    result = np.zeros(len(shapes) + 1, np.uint32)
    np.cumsum(blocks, out=result[1:])
    return result
