"""ICC profiles: recognise those of a matrix and curves, which cost a few milliseconds at most.

LittleCMS evaluates what a file gives it, and cannot be stopped: a profile of 9 kB with a hundred
stages of 270 curve segments each took 19 s. Layout: ICC.1:2022, section 7.
"""

import struct
from functools import lru_cache

MAX_BYTES = 16 << 10
"""Bytes of such a profile, at most; those of cameras and phones have 0.5 to 9 KiB."""

MAX_TAGS = 100
"""Tags of a profile, at most; LittleCMS reads no more, and the profiles of photos have 9 to 17."""

MAX_CURVE = 4096
"""Numbers of a curve, at most; the profiles of photos have 1, 1024 or 4096."""

_CACHED = 16
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

_PARAMETERS = (1, 3, 4, 5, 7)
"""Parameters of a parametric curve, by its kind."""


def is_matrix_profile(profile: bytes) -> bool:
    """Return whether a profile is certain to convert pixels by a matrix and short curves alone."""
    return _TABLE <= len(profile) <= MAX_BYTES and _is_matrix(profile)


@lru_cache(maxsize=_CACHED)
def _is_matrix(profile: bytes) -> bool:
    if profile[12:16] not in _CLASSES:
        return False
    needed = _NEEDED.get(profile[16:24])
    count = int.from_bytes(profile[128:_TABLE], "big")
    end = _TABLE + _TAG.size * count
    if needed is None or count > MAX_TAGS or end > len(profile):
        return False
    found = set()
    for name, start, size in _TAG.iter_unpack(profile[_TABLE:end]):
        if name in found or start + size > len(profile):
            return False
        if name in needed:
            if not _is_simple(name, profile[start : start + size]):
                return False
        elif name not in _OTHER:
            return False
        found.add(name)
    return found >= needed


def profile_cost(profile: bytes | None) -> float:
    """Return the CPU seconds that converting by a profile may take beside those of its pixels.

    Only stages (`D2B0` to `D2B3`) take many: a profile may name one large stage a hundred times.
    """
    table = (profile or b"")[_TABLE : _TABLE + _TAG.size * MAX_TAGS]
    names = (table[start : start + 3] for start in range(0, len(table), _TAG.size))
    return _SECONDS_OF_STAGES if b"D2B" in names else 0.0


def _is_simple(name: bytes, tag: bytes) -> bool:
    """Return whether a tag is a colour, or a curve of a bounded length."""
    kind = tag[:4]
    if name in _MATRIX:
        return kind == b"XYZ " and len(tag) == 20
    if len(tag) < 12:
        return False
    if kind == b"curv":
        count = int.from_bytes(tag[8:12], "big")
        return count <= MAX_CURVE and 12 + 2 * count <= len(tag)
    number = int.from_bytes(tag[8:10], "big")
    known = kind == b"para" and number < len(_PARAMETERS)
    return known and 12 + 4 * _PARAMETERS[number] <= len(tag)
