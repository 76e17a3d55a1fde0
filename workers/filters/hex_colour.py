"""Parameter types for colours in hexadecimal digits, with or without `#`.

A `#` in a URL has to be escaped as %23, so it is optional.
"""

from typing import Annotated

from pydantic import StringConstraints
from pydantic.config import JsonDict

HexColour = Annotated[str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
"""An opaque colour: `#ff8800`, `ff8800` or `f80`."""

HexColourAlpha = Annotated[
    str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$")
]
"""A colour that may have an opacity: eight digits end with it; fewer digits mean opaque."""

COLOUR: JsonDict = {"takes": "a colour such as ff8800 or f80"}
"""Schema entry of a HexColour: the words in which error messages and the catalogue describe it."""

COLOUR_ALPHA: JsonDict = {"takes": "a colour such as ff8800, f80 or, half transparent, ff880080"}
"""Schema entry of a HexColourAlpha."""


def rgba(colour: str) -> tuple[int, int, int, int]:
    """Return red, green, blue and opacity of a valid colour, each from 0 to 255."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    red, green, blue, alpha = bytes.fromhex(digits.ljust(8, "f"))
    return red, green, blue, alpha
