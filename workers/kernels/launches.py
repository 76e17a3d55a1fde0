"""Read from the CUDA text how its kernels are launched, so that tile sizes are stated only there.

Every kernel is followed by a line that states its grid:

    LAUNCHED_BY_TILES(kernel, width, height);  a block for every tile of an image, in pixels
    LAUNCHED_BY_LINES(kernel, samples);        a block for every piece of an image as a single line
    LAUNCHED_BY_BLOCKS(kernel, blocks);        the same number of blocks for every image

The numbers are integers, sums and products of integers, and constants of the text that are declared
at the beginning of a line (`constexpr int NAME = …;`). A test compares each of them with the number
that a compiler computes. The text is read when the first grid is asked for, not at import: front
ends declare filters but launch nothing.
"""

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parents[1]
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
    launches, constants = _declarations()
    if kernel not in launches:
        raise ValueError(f"the kernel {kernel} states no grid; add LAUNCHED_BY_TILES below it")
    kind, arguments = launches[kernel]
    numbers = [_value(each, constants) for each in arguments.split(",")]
    if kind == "TILES":
        width, height = numbers
        return Grid(width, height)
    (number,) = numbers
    return Grid(number, flat=True) if kind == "LINES" else Grid(each=number)


@functools.cache
def _declarations() -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return kind and arguments of the launch of each kernel, and each constant's expression."""
    files = sorted(file for file in _FOLDER.rglob("*.cu*") if file.suffix in {".cu", ".cuh"})
    text = _COMMENT.sub("", "\n".join(file.read_text("utf-8") for file in files))
    launches = {kernel: (kind, arguments) for kind, kernel, arguments in _LAUNCH.findall(text)}
    declared = (_NEXT_CONSTANT.split(found) for found in _CONSTANTS.findall(text))
    constants = dict(each.split(" = ", 1) for several in declared for each in several)
    return launches, constants


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
