"""What a launch is made of: its images as the kernels see them, and the blocks each one needs.

A kernel is `void NAME(const Item *items, const u32 *starts, int n)`, launched in one line of
starts[n] blocks of 256 threads; images of any size, channels and parameters share a launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

THREADS = 256
"""In every block."""

LINE = 12288
"""Samples a block of the kernels that see an image as one line."""

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
"""One image of a launch: addresses on the device and the shape of the source.

src, dst and scratch are aligned to 256 bytes, data to 16. Images are C-contiguous; src is not dst;
scratch is as large as the filter's `device_scratch` says; data is writable, and what its
`device_data` gave before its first pass. `step` says which of the filter's passes the launch is.
"""

Shape = tuple[int, int, int]
"""Height, width, channels."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One launch of a filter: a block for every tile of `width` by `height` pixels.

    Flat: a block for every `width` samples of the image taken as one line. With `each`: so many
    blocks for an image of any size. The image is the source, or, with `of_result`, the result.
    With `channels`: none for images of other numbers of them.
    """

    kernel: str
    width: int = 0
    height: int = 1
    flat: bool = False
    each: int = 0
    of_result: bool = False
    channels: tuple[int, ...] = ()

    def blocks(self, shape: Shape) -> int:
        """How many blocks an image of this shape needs."""
        return int(starts(self, [shape])[1])


def starts(pass_: Pass, shapes: Sequence[Shape]) -> NDArray[np.uint32]:
    """The first block of every image, and at last how many there are: n + 1 prefix sums."""
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
