"""Pixel modes, and colour profiles: cost, code points, and conversion to sRGB with LittleCMS.

Layout of profiles: ICC.1:2022, sections 7 and 10. Code points: ITU-T H.273, tables 2 and 3.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from io import BytesIO
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImageCms

from models.domain.image import Pixels

# Convert Pillow's many pixel modes to four: L, RGB, RGBA and CMYK, all of 8 bits.

_GREY = ("1", "L", "LA", "La", "F")

INVERTED, WHITE = "darkroom inverted", "darkroom white"
"""The keys in the `info` of Pillow's images of grey whose white is 0, and of the white of integers
without a sign."""


def is_grey(mode: str) -> bool:
    """Return whether Pillow's `mode` stores grey values, with or without alpha."""
    return mode in _GREY or mode.startswith("I")


def simplified(image: PillowImage.Image, scale: float = 1.0) -> PillowImage.Image:
    """Return `image` (loaded, any mode) as L, RGB, RGBA or CMYK; RGBA if it has transparency.

    `scale` is the white of floats, as `float_scale` returns it.

    Integers of more than 8 bits are 16-bit values, v → round(v / 257), clipped if a 32-bit
    container holds more; the white of a TIFF may be less than 65,535. Floats are 0…1 if the largest
    is at most 1, else 0…255; NaN is 0. (Pillow itself keeps only the high byte of 16-bit RGB, which
    differs from the rounded value by a level at most.)
    """
    mode = image.mode
    if not _transparency_is_sound(image):
        del image.info["transparency"]
    if mode == "F":
        return PillowImage.fromarray(_from_floats(np.asarray(image), scale))
    if mode.startswith("I"):
        return _from_integers(np.asarray(image), image.info)
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

    Pillow leaves it as stored. 16-bit RGB is compared by the high bytes, which Pillow keeps.
    """
    value = image.info.get("transparency")
    if image.mode == "L" and isinstance(value, int) and depth < 8:
        image.info["transparency"] = value * 255 // ((1 << depth) - 1)
    elif image.mode == "RGB" and isinstance(value, tuple) and depth > 8:
        image.info["transparency"] = tuple(each >> 8 for each in value)


def _transparency_is_sound(image: PillowImage.Image) -> bool:
    """Return False for the value that a PNG text chunk named "transparency" leaves in `info`."""
    value = image.info.get("transparency")
    if image.mode == "RGB":
        return value is None or isinstance(value, tuple)
    return value is None or isinstance(value, int | bytes)


def _from_integers(values: NDArray[Any], info: Mapping[Any, Any]) -> PillowImage.Image:
    white, transparent = info.get(WHITE, 65535), info.get("transparency")
    if WHITE in info and values.dtype == np.int32:
        values = values.view(np.uint32)
    scaled = np.clip(values, 0, white).astype(np.uint32)
    scaled *= 255
    scaled += white // 2
    scaled //= white
    grey = scaled.astype(np.uint8)
    if transparent is None:
        return PillowImage.fromarray(grey)
    alpha = np.where(values == transparent, np.uint8(0), np.uint8(255))
    return PillowImage.fromarray(np.dstack((grey, grey, grey, alpha)))


def _from_floats(values: NDArray[np.float32], top: float) -> Pixels:
    clipped = np.clip(np.nan_to_num(values, nan=0.0), 0.0, top)
    return (clipped * np.float32(255 / top) + np.float32(0.5)).astype(np.uint8)


MAX_BYTES = 16 << 10
"""Bytes of such a profile, at most; those of cameras and phones have 0.5 to 9 KiB."""

MAX_TAGS = 100
"""Tags of a profile, at most; LittleCMS reads no more, and the profiles of photos have 9 to 17."""

_REMEMBERED = 16
"""Profiles that are remembered, of MAX_BYTES at most: most photos have one of few."""

_TAG = struct.Struct(">4sII")
_TABLE = 132
"""Offset of the table of tags, behind the header and the number of tags."""

_SECONDS_OF_STAGES = 2.0
"""The CPU time that ends a decoder process with a small image."""

_CLASSES = (b"mntr", b"scnr", b"prtr", b"spac")
_MATRIX = (b"rXYZ", b"gXYZ", b"bXYZ")
_CURVES = (b"rTRC", b"gTRC", b"bTRC", b"kTRC")
_NEEDED = {
    b"RGB XYZ ": frozenset((*_MATRIX, *_CURVES[:3])),
    b"GRAYXYZ ": frozenset(_CURVES[3:]),
    b"GRAYLab ": frozenset(_CURVES[3:]),
}
"""The tags that a profile consists of, by the colours that it converts from and to."""

_OTHER = frozenset(
    (
        *(b"wtpt", b"bkpt", b"chad", b"lumi", b"chrm", b"cicp", b"meas", b"view", b"tech", b"calt"),
        *(b"desc", b"cprt", b"dmnd", b"dmdd", b"vued", b"dscm", b"targ", b"meta", b"mmod"),
        *(b"vcgt", b"ndin", b"flux", b"aarg", b"aagg", b"aabg"),
    )
)
"""Tags that change no pixel, or only the white: texts, measurements, and what a display needs."""


def profile_tags(profile: bytes) -> list[tuple[bytes, int, int]]:
    """Return name, offset and size of each tag that the table has, at most MAX_TAGS, unchecked."""
    count = min(int.from_bytes(profile[128:_TABLE], "big"), MAX_TAGS)
    table = profile[_TABLE : _TABLE + _TAG.size * count]
    return list(_TAG.iter_unpack(table[: len(table) // _TAG.size * _TAG.size]))


def is_matrix_profile(profile: bytes) -> bool:
    """Return whether a profile is certain to convert pixels by a matrix and short curves alone.

    LittleCMS refuses tags of another type than their names have; curves are short in MAX_BYTES.
    """
    return _TABLE <= len(profile) <= MAX_BYTES and _is_matrix(profile)


@lru_cache(maxsize=_REMEMBERED)
def _is_matrix(profile: bytes) -> bool:
    if profile[12:16] not in _CLASSES:
        return False
    needed = _NEEDED.get(profile[16:24])
    tags = profile_tags(profile)
    if needed is None or len(tags) != int.from_bytes(profile[128:_TABLE], "big"):
        return False
    found = set()
    for name, start, size in tags:
        if name in found or start + size > len(profile) or name not in needed | _OTHER:
            return False
        found.add(name)
    return found >= needed


def profile_cost(profile: bytes | None) -> float:
    """Return the CPU seconds that converting by a profile may take beside the conversion of the
    pixels.

    Only stages (`D2B0` to `D2B3`) take many: a profile may name the same large stage a hundred
    times.
    """
    names = [name[:3] for name, _, _ in profile_tags(profile or b"")]
    return _SECONDS_OF_STAGES if b"D2B" in names else 0.0


# Profiles of code points. Highlights of PQ and HLG above their reference white of 203 cd/m² (ITU-R
# BT.2408) become white.

_D65, _C = (0.3127, 0.3290), (0.310, 0.316)
_SRGB = 1
_PRIMARIES: Mapping[int, tuple[tuple[float, float], ...]] = {
    _SRGB: ((0.640, 0.330), (0.300, 0.600), (0.150, 0.060), _D65),
    4: ((0.67, 0.33), (0.21, 0.71), (0.14, 0.08), _C),
    5: ((0.64, 0.33), (0.29, 0.60), (0.15, 0.06), _D65),
    6: ((0.630, 0.340), (0.310, 0.595), (0.155, 0.070), _D65),
    7: ((0.630, 0.340), (0.310, 0.595), (0.155, 0.070), _D65),
    9: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046), _D65),
    11: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060), (0.314, 0.351)),
    12: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060), _D65),
    22: ((0.630, 0.340), (0.295, 0.605), (0.155, 0.077), _D65),
}
"""Chromaticities of red, green, blue and white."""

_UNSPECIFIED = 2
_LIKE_SRGB = frozenset((1, _UNSPECIFIED, 6, 13, 14, 15))
"""Curves of video and of sRGB, which browsers show alike."""

_GAMMAS = {4: 2.2, 5: 2.8, 8: 1.0, 17: 2.6}
_PQ, _HLG = 16, 18
_REFERENCE_WHITE, _HLG_PEAK = 203.0, 1000.0
_POINTS = 4096

_D50 = np.array([0.9642, 1.0, 0.8249])
_BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]]
)


@lru_cache(maxsize=16)
def cicp_profile(primaries: int, transfer: int, *, grey: bool) -> bytes | None:
    """Return an ICC profile, empty for sRGB; None for code points without clear colours."""
    if primaries == transfer == _UNSPECIFIED:
        return None
    curve = _curve(transfer)
    primaries = _SRGB if primaries == _UNSPECIFIED or grey else primaries
    if curve is None or primaries not in _PRIMARIES:
        return None
    if primaries == _SRGB and transfer in _LIKE_SRGB:
        return b""
    name = f"CICP {primaries}/{transfer}".encode("utf-16-be")
    tags = {
        b"desc": struct.pack(">4sIII2s2sII", b"mluc", 0, 1, 12, b"en", b"US", len(name), 28) + name
    }
    tags[b"wtpt"] = _xyz(_D50)
    if grey:
        tags[b"kTRC"] = curve
    else:
        for letter, colour in zip("rgb", _colorants(*_PRIMARIES[primaries]).T, strict=True):
            tags[f"{letter}XYZ".encode()] = _xyz(colour)
            tags[f"{letter}TRC".encode()] = curve
    return _profile(b"GRAY" if grey else b"RGB ", tags)


def _curve(transfer: int) -> bytes | None:
    """Return a curve from encoded to linear values, as a tag of a profile."""
    if transfer in _LIKE_SRGB:
        numbers = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
        return struct.pack(">4sIHH5i", b"para", 0, 3, 0, *(round(n * 65536) for n in numbers))
    if transfer in _GAMMAS:
        return struct.pack(">4sIHHi", b"para", 0, 0, 0, round(_GAMMAS[transfer] * 65536))
    encoded = np.linspace(0, 1, _POINTS)
    if transfer == _PQ:
        root = encoded ** (1 / 78.84375)
        light = np.maximum(root - 0.8359375, 0) / (18.8515625 - 18.6875 * root)
        nits = 10_000 * light ** (1 / 0.1593017578125)
    elif transfer == _HLG:
        a, b, c = 0.17883277, 0.28466892, 0.55991073
        scene = np.where(encoded <= 0.5, encoded**2 / 3, (np.exp((encoded - c) / a) + b) / 12)
        nits = _HLG_PEAK * scene**1.2
    else:
        return None
    levels = np.round(np.minimum(nits / _REFERENCE_WHITE, 1) * 65535).astype(">u2")
    return struct.pack(">4sII", b"curv", 0, _POINTS) + levels.tobytes()


def _colorants(*places: tuple[float, float]) -> NDArray[np.float64]:
    """Return XYZ of red, green and blue as columns, adapted to D50 by Bradford's matrix."""
    red, green, blue, white = (np.array([x / y, 1, (1 - x - y) / y]) for x, y in places)
    colours = np.stack([red, green, blue], axis=1)
    colours = colours * np.linalg.solve(colours, white)
    gains = (_BRADFORD @ _D50) / (_BRADFORD @ white)
    adapted: NDArray[np.float64] = (
        np.linalg.inv(_BRADFORD) @ (gains[:, np.newaxis] * _BRADFORD) @ colours
    )
    return adapted


def _xyz(colour: NDArray[np.float64]) -> bytes:
    return struct.pack(">4sI3i", b"XYZ ", 0, *(round(float(each) * 65536) for each in colour))


def _profile(space: bytes, tags: Mapping[bytes, bytes]) -> bytes:
    start = 128 + 4 + 12 * len(tags)
    table, content = struct.pack(">I", len(tags)), b""
    for name, tag in tags.items():
        table += struct.pack(">4sII", name, start + len(content), len(tag))
        content += tag + b"\0" * (-len(tag) % 4)
    head = struct.pack(
        ">I4sI4s4s4s", start + len(content), b"", 0x04300000, b"mntr", space, b"XYZ "
    )
    head += struct.pack(">6H4s", 2024, 1, 1, 0, 0, 0, b"acsp").ljust(32, b"\0")
    return (head + _xyz(_D50)[8:]).ljust(128, b"\0") + table + content


# Conversion. A profile that is broken, or of another colour space than the pixels, is ignored. The
# intent is relative colorimetric with black point compensation, as in photo editors.

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
            return image.point(per_band(curve, image.mode)) if curve else image
        if transform := _transform(profile, image.mode):
            return transform.apply(image)
    return image.convert("RGB") if image.mode == "CMYK" else image


def is_srgb(profile: bytes | None, *, grey: bool) -> bool:
    """Return whether pixels with this profile need no conversion."""
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return True
    return not _grey_curve(profile) if grey else _transform(profile, "RGB") is None


def _cached(build: F) -> F:
    """Keep the last results of a function of a profile, and a single result for large profiles.

    The parts of a large image need their transform again and again. A cache holds the profiles too:
    a cache of profiles of all sizes could take 64 MB in each process.
    """
    small, large = lru_cache(maxsize=_CACHED)(build), lru_cache(maxsize=1)(build)

    @wraps(build)
    def kept(profile: bytes, *mode: str) -> object:
        return (small if len(profile) <= MAX_CACHED_BYTES else large)(profile, *mode)

    return cast(F, kept)


def per_band(curve: list[int], mode: str) -> list[int]:
    """Return a table for `point` of a picture in L or RGBA that leaves alpha as it is."""
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
