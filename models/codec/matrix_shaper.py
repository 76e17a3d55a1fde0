"""Convert RGB of a profile of curves and a matrix to sRGB in integers, with LittleCMS's bytes.

LittleCMS (`MatShaperEval16` of cmsopt.c) converts 8-bit RGB between two profiles of this kind in
fixed point of 14 bits: a table for each channel makes linear light of the levels, a matrix mixes
the three channels, and a table makes sRGB levels of the sums. So a device needs 1,572 bytes of a
profile, a `SHAPER`, and the table of sRGB, which is the same for all profiles.
"""

import struct
from functools import cache, lru_cache
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageCms

from models.codec.colour import profile_tags, to_srgb
from models.domain.image import Pixels

SHAPER = np.dtype([("linear", np.int16, (3, 256)), ("matrix", np.int32, (3, 3))])
"""The beginning of the struct `Shaper` of workers/kernels/headers/source.cuh; 1 is 1 << 14."""

_ONE = 1 << 14
_MAX_LINEAR, _MAX_ROW = 1 << 15, 1 << 16
"""Bounds of linear light and of the absolute sum of a row of the matrix: sums stay in 32 bits."""

_CURVES = (b"rTRC", b"gTRC", b"bTRC")
_LEVELS = (np.arange(256) / 255).astype(np.float32).astype(np.float64)
_SAMPLE = np.random.default_rng(0).integers(0, 256, (64, 128, 3), np.uint8)
"""Colours in which every level of every channel occurs many times."""


@lru_cache(maxsize=16)
def matrix_shaper(profile: bytes) -> bytes | None:
    """Return the `SHAPER` of an RGB profile that `is_matrix_profile`, or None if LittleCMS converts
    in another way.

    LittleCMS has other ways for other profiles, as for curves alone if the matrix is the identity.
    They differ from a shaper in many of 8,192 colours, or in levels of a channel; the comparison
    takes 1 ms.
    """
    try:
        shaper = _read(profile)
    except (KeyError, OSError, TypeError, ValueError, struct.error, ImageCms.PyCMSError):
        return None
    if shaper is None:
        return None
    expected = np.asarray(to_srgb(PillowImage.fromarray(_SAMPLE), profile, grey=False))
    return shaper.tobytes() if np.array_equal(shaped(_SAMPLE, shaper), expected) else None


def shaped(pixels: Pixels, shaper: NDArray[np.void]) -> Pixels:
    """Return RGB pixels, uint8 (height, width, 3), in sRGB."""
    linear = shaper["linear"][np.arange(3), pixels].astype(np.int32)
    sums = (linear @ shaper["matrix"].T + _ONE // 2) >> 14
    levels: Pixels = srgb_levels()[np.clip(sums, 0, _ONE)]
    return levels


@cache
def srgb_levels() -> Pixels:
    """Return the sRGB levels of linear light from 0 to 1, uint8 (16385,)."""
    light = np.arange(_ONE + 1) / _ONE
    encoded = np.where(light < 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    words = np.floor(encoded.astype(np.float32) * np.float64(65535) + 0.5).astype(np.int64)
    return ((words * 65281 + (1 << 23)) >> 24).astype(np.uint8)  # from 16 bits to 8, as LittleCMS


def _read(profile: bytes) -> NDArray[np.void] | None:
    """Return the shaper of a profile, or None if its numbers are too large.

    Raises errors for a profile that cannot be read, or has a curve of a rare type.
    """
    tags = {name: profile[start : start + size] for name, start, size in profile_tags(profile)}
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    with np.errstate(all="ignore"):
        linear = np.array([_linear(tags[name]) for name in _CURVES])
        linear = np.floor(linear.astype(np.float32) * np.float64(_ONE) + 0.5)
        matrix = np.floor(np.linalg.solve(_colorants(target), _colorants(source)) * _ONE + 0.5)
    # A comparison with NaN is false.
    if not (np.abs(linear) < _MAX_LINEAR).all() or not (np.abs(matrix).sum(1) < _MAX_ROW).all():
        return None
    shaper = np.zeros((), SHAPER)
    shaper["linear"], shaper["matrix"] = linear, matrix
    return shaper


def _colorants(profile: ImageCms.ImageCmsProfile) -> NDArray[np.float64]:
    """Return XYZ of red, green and blue as columns."""
    found = profile.profile
    each = (found.red_colorant, found.green_colorant, found.blue_colorant)
    return np.array([colour[0] for colour in each if colour]).T


def _linear(tag: bytes) -> NDArray[np.float64]:
    """Return the linear light of 256 levels by a curve (ICC.1:2022, 10.6 and 10.18)."""
    if tag[:4] == b"para":
        (function,) = struct.unpack_from(">H", tag, 8)
        if function not in (0, 3):
            raise ValueError("a curve of a rare type")
        numbers = struct.unpack_from(">5i" if function else ">i", tag, 12)
        return _power(*(number / 65536 for number in numbers))
    (count,) = struct.unpack_from(">I", tag, 8)
    if tag[:4] != b"curv" or count <= 1:
        return _power(struct.unpack_from(">H", tag, 12)[0] / 256 if count else 1.0)
    table = np.frombuffer(tag, ">u2", count, 12).astype(np.int64)
    # LittleCMS's interpolation, in fixed point of 16 bits.
    place = np.arange(256) * 257 * (count - 1)
    place += (place + 0x7FFF) // 0xFFFF
    low, rest = place >> 16, place & 0xFFFF
    step = table[np.minimum(low + 1, count - 1)] - table[low]
    words: NDArray[np.int64] = table[low] + ((step * rest + 0x8000) >> 16)
    return words / 65535


def _power(
    gamma: float, a: float = 1.0, b: float = 0.0, slope: float = 0.0, start: float = 0.0
) -> NDArray[np.float64]:
    """Return (a·x + b) ** gamma for levels x from `start` on, and slope · x below."""
    above = np.maximum(a * _LEVELS + b, 0.0) ** gamma
    return np.where(start <= _LEVELS, above, slope * _LEVELS)
