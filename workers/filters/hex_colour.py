"""Colours as parameters: hexadecimal digits, with `#` or without (in a URL it has to be %23)."""

from typing import Annotated

from pydantic import StringConstraints
from pydantic.config import JsonDict

HexColour = Annotated[str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$")]
"""`#ff8800`, `ff8800` or `f80`."""

HexColourAlpha = Annotated[
    str, StringConstraints(pattern="^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$")
]
"""The same; with eight digits the last two are the opacity, else it is opaque."""

COLOUR: JsonDict = {"takes": "a colour such as ff8800 or f80"}
"""Goes into the schema of a HexColour."""

COLOUR_ALPHA: JsonDict = {"takes": "a colour such as ff8800, f80 or, half transparent, ff880080"}
"""Goes into the schema of a HexColourAlpha."""


def rgba(colour: str) -> tuple[int, int, int, int]:
    """Red, green, blue and opacity, each 0…255."""
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    red, green, blue, alpha = bytes.fromhex(digits.ljust(8, "f"))
    return red, green, blue, alpha
