"""The layout of a launch: its images as kernels read them, and the blocks that each image needs.

A kernel is `void NAME(const Item *items, const u32 *starts, int n)`, launched as a one-dimensional
grid of starts[n] blocks of 256 threads. Images of any size, channels and parameters share a launch.
"""

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.loader import modules

# Grids are read from the CUDA text, so that tile sizes are stated only there. Every kernel is
# followed by a line that states its grid:
#
#     LAUNCHED_BY_TILES(kernel, width, height);  a block for every tile of an image, in pixels
#     LAUNCHED_BY_LINES(kernel, samples);        a block for every piece of an image as one line
#     LAUNCHED_BY_BLOCKS(kernel, blocks);        the same number of blocks for every image
#
# The numbers are integers, sums and products of integers, and constants of the text that are
# declared at the beginning of a line (`constexpr int NAME = …;`). A test compares each of them with
# the number that a compiler computes. The text is read when the first grid is asked for, by an
# engine or to check the filters of other packages, and not at import: front ends launch nothing.

_COMMENT = re.compile(r"//.*")
_LAUNCH = re.compile(r"^LAUNCHED_BY_(TILES|LINES|BLOCKS)\((\w+), ([^;]+)\);", re.MULTILINE)
_CONSTANTS = re.compile(r"^constexpr (?:int|u32) ([^;]+);", re.MULTILINE)
_NEXT_CONSTANT = re.compile(r",\s*(?=\w+ = )")

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}


class Grid(NamedTuple):
    """How the blocks of a launch cover an image.

    There is a block for every tile of `width` by `height` pixels. `flat`: for every `width` samples
    of the image as a single line. `each`: this number of blocks for an image of any size.
    """

    width: int = 0
    height: int = 1
    flat: bool = False
    each: int = 0


@functools.cache
def grid_of(kernel: str) -> Grid:
    """Return the grid that the CUDA text states for a kernel.

    Raises ValueError for a kernel without this line, and for a number that cannot be computed.
    """
    if kernel not in _launches():
        raise ValueError(f"the kernel {kernel} states no grid; add LAUNCHED_BY_TILES below it")
    kind, arguments, constants = _launches()[kernel]
    numbers = [_value(each, constants) for each in arguments.split(",")]
    if kind == "TILES":
        width, height = numbers
        return Grid(width, height)
    (number,) = numbers
    return Grid(number, flat=True) if kind == "LINES" else Grid(each=number)


@functools.cache
def _launches() -> dict[str, tuple[str, str, dict[str, str]]]:
    """Return kind and arguments of the launch of each kernel, and the constants of its module."""
    found = {}
    for module in modules():
        text = _COMMENT.sub("", module.text)
        declared = (_NEXT_CONSTANT.split(each) for each in _CONSTANTS.findall(text))
        constants = dict(each.split(" = ", 1) for several in declared for each in several)
        for kind, kernel, arguments in _LAUNCH.findall(text):
            found[kernel] = (kind, arguments, constants)
    return found


def _value(expression: str, constants: Mapping[str, str]) -> int:
    def computed(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name) if name in constants:
                return _value(constants[name], constants)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](computed(left), computed(right))
        raise ValueError(
            f"{expression.strip()!r} is no sum or product of integers and of constants that are "
            "declared at the beginning of a line"
        )

    return computed(ast.parse(" ".join(expression.split()), mode="eval").body)


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
