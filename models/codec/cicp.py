"""Colour profiles of the code points that PNG (cICP) and AVIF (nclx) name colours by.

Code points: ITU-T H.273, tables 2 and 3. Layout of profiles: ICC.1:2022, sections 7 and 10.
Highlights of PQ and HLG above their reference white of 203 cd/m² (ITU-R BT.2408) become white.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
    """Return an ICC profile of these colours; None for sRGB, and for code points without clear
    colours.
    """
    curve = _curve(transfer)
    primaries = _SRGB if primaries == _UNSPECIFIED or grey else primaries
    if curve is None or primaries not in _PRIMARIES:
        return None
    if primaries == _SRGB and transfer in _LIKE_SRGB:
        return None
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
