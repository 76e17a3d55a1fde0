"""The layout of a launch: its images as kernels read them, and the blocks that each image needs.

A kernel is `void NAME(const Item *items, const u32 *starts, int n)`, launched as a one-dimensional
grid of starts[n] blocks of 256 threads. Images of any size, channels and parameters share a launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

THREADS = 256
"""Threads of every block."""

LINE = 12288
"""Samples of a block, for kernels that read an image as one line."""

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


@dataclass(frozen=True, slots=True)
class Pass:
    """One launch of a filter, with a block for every tile of `width` by `height` pixels.

    `flat`: a block for every `width` samples of the image as one line. `each`: this number of
    blocks for an image of any size. `of_result`: tiles cover the result instead of the source.
    `channels`: only images with these numbers of channels get blocks.
    """

    kernel: str
    width: int = 0
    height: int = 1
    flat: bool = False
    each: int = 0
    of_result: bool = False
    channels: tuple[int, ...] = ()

    def blocks(self, shape: Shape) -> int:
        """Return how many blocks an image of this shape needs."""
        return int(starts(self, [shape])[1])


def starts(pass_: Pass, shapes: Sequence[Shape]) -> NDArray[np.uint32]:
    """Return the first block of every image, then the number of all blocks: n + 1 prefix sums,
    uint32.
    """
    height, width, channels = np.array(shapes, np.int64).reshape(-1, 3).T
    if pass_.each:
        blocks = np.full(len(shapes), pass_.each, np.int64)
    elif pass_.flat:
        blocks = -(-height * width * channels // pass_.width)
    else:
        blocks = -(-width // pass_.width) * -(-height // pass_.height)
    if pass_.channels:
        blocks = np.where(np.isin(channels, pass_.channels), blocks, 0)
    result = np.zeros(len(shapes) + 1, np.uint32)
    np.cumsum(blocks, out=result[1:])
    return result
