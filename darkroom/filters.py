"""The classes and functions that a package of filters is made of.

`from darkroom.filters import Filter` works in a checkout and in a wheel, where the packages of
Darkroom have other places. `docs/add-a-filter.md` describes such a package.
"""

from darkroom.script import find_packages

find_packages()

from models.domain.errors import InvalidParameter  # noqa: E402
from models.domain.image import Pixels  # noqa: E402
from workers.filters.arithmetic.colour import join_alpha, luma, rounded_table, split_alpha  # noqa: E402
from workers.filters.base import (  # noqa: E402
    OPAQUE,
    WITH_ALPHA,
    ArrayFilter,
    ColourFilter,
    CountingFilter,
    Filter,
    HexColour,
    HexColourAlpha,
    Odd,
    PieceFilter,
    TableFilter,
    colour,
    number,
    odd,
    rgba,
)
from workers.kernels.items import Grid, Pass, Shape  # noqa: E402

__all__ = [
    "OPAQUE",
    "WITH_ALPHA",
    "ArrayFilter",
    "ColourFilter",
    "CountingFilter",
    "Filter",
    "Grid",
    "HexColour",
    "HexColourAlpha",
    "InvalidParameter",
    "Odd",
    "Pass",
    "PieceFilter",
    "Pixels",
    "Shape",
    "TableFilter",
    "colour",
    "join_alpha",
    "luma",
    "number",
    "odd",
    "rgba",
    "rounded_table",
    "split_alpha",
]
