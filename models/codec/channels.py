"""Convert Pillow's many pixel modes to four: L, RGB, RGBA and CMYK, all of 8 bits.

Files and colour profiles are handled elsewhere.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from models.domain.image import Pixels

_GREY = ("1", "L", "LA", "La", "F")


def is_grey(mode: str) -> bool:
    """Return whether Pillow's `mode` stores grey values, with or without alpha."""
    return mode in _GREY or mode.startswith("I")


def simplified(image: PillowImage.Image, scale: float = 1.0) -> PillowImage.Image:
    """Return `image` (loaded, any mode) as L, RGB, RGBA or CMYK; RGBA if it has transparency.

    `scale` is the white of floats, as `float_scale` returns it.

    Integers of more than 8 bits are 16-bit values, v → round(v / 257), clipped if a 32-bit
    container holds more. Floats are 0…1 if the largest is at most 1, else 0…255; NaN is 0. (Pillow
    itself keeps only the high byte of 16-bit RGB, which differs from the rounded value by a level
    at most.)
    """
    mode = image.mode
    if not _transparency_is_sound(image):
        del image.info["transparency"]
    if mode == "F":
        return PillowImage.fromarray(_from_floats(np.asarray(image), scale))
    if mode.startswith("I"):
        return _from_integers(np.asarray(image), image.info.get("transparency"))
    if mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        return image.convert("RGBA")
    if mode in ("L", "RGB", "CMYK"):
        return image
    return image.convert("L" if mode == "1" else "RGB")


def float_scale(image: PillowImage.Image) -> float:
    """Return the white of an image of floats: 1 if its largest value is at most 1, else 255.

    The white of an image in several stripes is the largest white of a stripe.
    """
    values = np.asarray(image)
    return 1.0 if values[np.isfinite(values)].max(initial=0.0) <= 1 else 255.0


def scale_transparency(image: PillowImage.Image, depth: int) -> None:
    """Scale the transparent colour of a PNG of `depth` bits to the 8 bits that its pixels have.

    Pillow leaves it as stored. 16-bit RGB is compared elsewhere, by all bits (`png.py`).
    """
    value = image.info.get("transparency")
    if image.mode == "L" and isinstance(value, int) and depth < 8:
        image.info["transparency"] = value * 255 // ((1 << depth) - 1)


def _transparency_is_sound(image: PillowImage.Image) -> bool:
    """Return False for the value that a PNG text chunk named "transparency" leaves in `info`."""
    value = image.info.get("transparency")
    if image.mode == "RGB":
        return value is None or isinstance(value, tuple)
    return value is None or isinstance(value, int | bytes)


def _from_integers(values: NDArray[Any], transparent: int | None) -> PillowImage.Image:
    scaled = np.clip(values, 0, 65535).astype(np.uint32)
    scaled *= 255
    scaled += 32767
    scaled //= 65535
    grey = scaled.astype(np.uint8)
    if transparent is None:
        return PillowImage.fromarray(grey)
    alpha = np.where(values == transparent, np.uint8(0), np.uint8(255))
    return PillowImage.fromarray(np.dstack((grey, grey, grey, alpha)))


def _from_floats(values: NDArray[np.float32], top: float) -> Pixels:
    clipped = np.clip(np.nan_to_num(values, nan=0.0), 0.0, top)
    return (clipped * np.float32(255 / top) + np.float32(0.5)).astype(np.uint8)
