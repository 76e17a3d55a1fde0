"""Convert embedded ICC profiles to sRGB, with LittleCMS.

A profile that is broken, or of another colour space than the pixels, is ignored. The intent is
relative colorimetric with black point compensation, as in photo editors.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from io import BytesIO
from typing import TypeVar, cast

import numpy as np
from PIL import Image as PillowImage
from PIL import ImageCms

from models.domain.image import Pixels

MAX_PROFILE_BYTES = 4 << 20
"""Larger profiles are ignored; the largest printing profiles in use are 2 to 3 MB."""

MAX_SRGB_DIFFERENCE = 2
"""Levels, on a grid of colours, by which a profile may differ from sRGB and still be sRGB.

Over real photos the many profiles called sRGB differ by 0 or 1, all others by 56 or more.
"""

_CACHED = 16
"""Number of transforms kept: building one takes 2 ms, even to find that nothing is to be done."""

MAX_CACHED_BYTES = 64 << 10
"""Bytes of a profile up to which its transform is kept; those of nearly all photos are smaller."""

F = TypeVar("F", bound=Callable[..., object])

_STEPS = np.linspace(0, 255, 6).astype(np.uint8)
_GRID = np.stack(np.meshgrid(_STEPS, _STEPS, _STEPS), axis=-1).reshape(6, 36, 3)
_RAMP = np.arange(256, dtype=np.uint8).reshape(1, 256)


def to_srgb(image: PillowImage.Image, profile: bytes | None, *, grey: bool) -> PillowImage.Image:
    """Return `image` (L, RGB, RGBA or CMYK) in sRGB: L, RGB or RGBA.

    `grey` states that its pixels are grey values, whatever the mode: then a grey profile applies,
    as a curve, so that grey stays grey. Alpha is kept. CMYK without a usable profile is converted
    by Pillow's plain formula.
    """
    if profile and len(profile) <= MAX_PROFILE_BYTES:
        if grey:
            curve = _grey_curve(profile)
            return image.point(_per_band(curve, image.mode)) if curve else image
        if transform := _transform(profile, image.mode):
            return transform.apply(image)
    return image.convert("RGB") if image.mode == "CMYK" else image


def is_srgb(profile: bytes | None, *, grey: bool) -> bool:
    """Return whether pixels with this profile need no conversion."""
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return True
    return not _grey_curve(profile) if grey else _transform(profile, "RGB") is None


def _cached(build: F) -> F:
    """Keep the last results of a function of a profile, and one for large profiles.

    The parts of a large image need their transform again and again. A cache holds the profiles too:
    one of all sizes could take 64 MB in each process.
    """
    small, large = lru_cache(maxsize=_CACHED)(build), lru_cache(maxsize=1)(build)

    @wraps(build)
    def kept(profile: bytes, *mode: str) -> object:
        return (small if len(profile) <= MAX_CACHED_BYTES else large)(profile, *mode)

    return cast(F, kept)


def _per_band(curve: list[int], mode: str) -> list[int]:
    return curve if mode == "L" else curve * 3 + list(range(256))


@_cached
def _grey_curve(profile: bytes) -> list[int] | None:
    """Return 256 sRGB levels for the 256 grey values, or None if there is nothing to convert."""
    transform = _build(profile, "GRAY", "L", "RGB")
    if transform is None:
        return None
    curve = np.asarray(transform.apply(PillowImage.fromarray(_RAMP)))[0, :, 1]
    return None if _close(curve, _RAMP[0]) else [int(level) for level in curve]


@_cached
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform from RGB, RGBA or CMYK pixels to sRGB, or None if there is nothing to
    convert.

    Threads may share it.
    """
    if mode == "CMYK":
        return _build(profile, "CMYK", mode, "RGB")
    transform = _build(profile, "RGB", mode, mode)
    if transform is None:
        return None
    grid = PillowImage.fromarray(_GRID).convert(mode)
    return None if _close(np.asarray(transform.apply(grid))[..., :3], _GRID) else transform


def _build(profile: bytes, space: str, mode: str, target: str) -> ImageCms.ImageCmsTransform | None:
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        if source.profile.xcolor_space.strip() != space:
            return None
        return ImageCms.buildTransform(
            source,
            ImageCms.createProfile("sRGB"),
            mode,
            target,
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None


def _close(a: Pixels, b: Pixels) -> bool:
    return int(np.abs(a.astype(np.int16) - b).max()) <= MAX_SRGB_DIFFERENCE
