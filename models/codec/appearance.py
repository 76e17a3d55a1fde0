"""Say how an image looks in a few bytes: a perceptual hash, a placeholder and dominant colours.

All sums are of integers, so that each machine gives the same values.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage

from models.codec.description import OPAQUE, SIDE, ColourShare, Description, reduced
from models.codec.rows import PictureRows
from models.codec.stripes import STRIPE
from models.domain.image import Pixels

COLOURS = 5
"""Most dominant colours of an image."""

_GREY, _LOW = 32, 8
"""Side of the grey copy that is hashed, and of the square of low frequencies that are compared."""

_COLUMNS, _ROWS = 4, 3
"""Components of a BlurHash."""

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz#$%*+,-.:;=?@[]^_{|}~"

Integers = NDArray[np.int64]

_LEVELS = np.arange(256) / 255
_LIGHT = np.rint(
    np.where(_LEVELS <= 0.04045, _LEVELS / 12.92, ((_LEVELS + 0.055) / 1.055) ** 2.4) * 2**16
).astype(np.int64)
"""Light of each level of sRGB, times 2 ** 16."""


def with_appearance(found: Description, pixels: Pixels) -> Description:
    """Return a description with the appearance of upright sRGB pixels of 1, 3 or 4 channels."""
    height, width, channels = pixels.shape
    if channels == 1:
        pixels = pixels[..., 0]
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]

    def crop(box: tuple[int, int, int, int]) -> PillowImage.Image:
        left, top, right, bottom = box
        return PillowImage.fromarray(pixels[top:bottom, left:right])

    small = reduced(PictureRows((width, height), mode, crop))
    small.thumbnail((SIDE, SIDE))
    phash, blurhash = _phash(pixels), _blurhash(small)
    return replace(found, phash=phash, blurhash=blurhash, colours=_colours(small))


def _phash(pixels: Pixels) -> str:
    """Return the hash of the package imagehash, `phash`: whether each low frequency of the grey
    copy is above their median. Of the whole image only a grey copy is made, a byte per pixel.
    """
    height, width = pixels.shape[:2]
    whole = PillowImage.new("L", (width, height))
    step = max(1, STRIPE // width)
    for top in range(0, height, step):
        whole.paste(PillowImage.fromarray(pixels[top : top + step]).convert("L"), (0, top))
    grey = np.asarray(whole.resize((_GREY, _GREY), PillowImage.Resampling.LANCZOS), np.int64)
    waves = _cosines(_LOW, 1, _GREY, 20)
    found = waves @ grey @ waves.T  # below 2 ** 58
    ordered = np.sort(found, axis=None)
    return np.packbits(2 * found > ordered[31] + ordered[32]).tobytes().hex()


def _cosines(count: int, phase: int, size: int, bits: int) -> Integers:
    """Return cosines of `count` frequencies at `size` samples, times 2 ** bits.

    They are those of the DCT-II with the phase 1, and those of a BlurHash with the phase 0.
    """
    angles = np.outer(np.arange(count), 2 * np.arange(size) + phase) * (np.pi / (2 * size))
    cosines: Integers = np.rint(np.cos(angles) * 2**bits).astype(np.int64)
    return cosines


def _blurhash(small: PillowImage.Image) -> str:
    """Return the BlurHash of an image of at most 64 pixels a side, on white.

    Source: https://github.com/woltapp/blurhash/blob/master/Algorithm.md
    """
    if small.mode == "RGBA":
        small = PillowImage.alpha_composite(PillowImage.new("RGBA", small.size, "white"), small)
    light = _LIGHT[np.asarray(small.convert("RGB"))]
    height, width, _ = light.shape
    down, across = _cosines(_ROWS, 0, height, 14), _cosines(_COLUMNS, 0, width, 14)
    sums = np.einsum("jy,yxc,ix->jic", down, light, across).reshape(-1, 3)  # below 2 ** 57
    mean, *others = sums / (height * width * 2.0**44)
    waves = 2 * np.array(others)
    most = int(np.clip(np.abs(waves).max() * 166 - 0.5, 0, 82))
    shares = waves / ((most + 1) / 166)
    steps = np.floor(np.copysign(np.sqrt(np.abs(shares)), shares) * 9 + 9.5).clip(0, 18)
    levels = np.where(mean <= 0.0031308, mean * 12.92, 1.055 * mean ** (1 / 2.4) - 0.055)
    numbers = [(_COLUMNS - 1 + 9 * (_ROWS - 1), 1), (most, 1)]
    numbers.append((_joined(levels * 255 + 0.5, 256), 4))
    numbers += [(_joined(each, 19), 2) for each in steps]
    return "".join(
        _DIGITS[number // 83**place % 83] for number, n in numbers for place in reversed(range(n))
    )


def _joined(digits: NDArray[np.float64], base: int) -> int:
    red, green, blue = (int(each) for each in digits)
    return (red * base + green) * base + blue


def _colours(small: PillowImage.Image) -> list[ColourShare]:
    """Return the means of the boxes that median cut makes of the opaque pixels."""
    pixels = np.asarray(small.convert("RGBA")).reshape(-1, 4)
    opaque = pixels[pixels[:, 3] >= OPAQUE, :3]
    if not len(opaque):
        return []
    cut = PillowImage.fromarray(opaque[np.newaxis]).quantize(
        COLOURS, PillowImage.Quantize.MEDIANCUT, dither=PillowImage.Dither.NONE
    )
    means = np.array(cut.getpalette(), np.uint8).reshape(-1, 3)
    counts = np.bincount(np.asarray(cut)[0])
    order = [n for n in np.argsort(-counts, kind="stable") if counts[n]]
    return [
        ColourShare(f"#{means[n].tobytes().hex()}", round(int(counts[n]) / len(opaque), 4))
        for n in order
    ]
