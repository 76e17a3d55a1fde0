"""Small ICC profiles, made of bytes: a photo's RGB space, a grey curve, an ink table."""

import struct
from collections.abc import Mapping

WIDE_RGB = {
    b"rXYZ": (0.6097, 0.3111, 0.0195),
    b"gXYZ": (0.2053, 0.6257, 0.0609),
    b"bXYZ": (0.1492, 0.0632, 0.7446),
}
"""The primaries of Adobe RGB (1998), adapted to D50."""

WHITE = (0.9642, 1.0, 0.8249)


def rgb_profile(gamma: float = 2.2) -> bytes:
    curve = _curve(gamma)
    tags = {name: _xyz(xyz) for name, xyz in WIDE_RGB.items()}
    return _profile(b"RGB ", b"XYZ ", {**tags, b"rTRC": curve, b"gTRC": curve, b"bTRC": curve})


def grey_profile(gamma: float) -> bytes:
    return _profile(b"GRAY", b"XYZ ", {b"kTRC": _curve(gamma)})


def ink_profile() -> bytes:
    """CMYK in which the lightness is 100 less 25 for each full ink, without any colour."""
    identity = bytes(range(256))
    corners = [bin(i).count("1") for i in range(16)]
    table = b"".join(bytes((255 - inks * 255 // 4, 128, 128)) for inks in corners)
    matrix = struct.pack(">9i", *(65536 if i % 4 == 0 else 0 for i in range(9)))
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + matrix + identity * 4 + table + identity * 3
    return _profile(b"CMYK", b"Lab ", {b"A2B0": lut}, kind=b"prtr")


def _profile(
    space: bytes, connection: bytes, tags: Mapping[bytes, bytes], kind: bytes = b"mntr"
) -> bytes:
    tags = {**tags, b"wtpt": _xyz(WHITE), b"cprt": b"text\0\0\0\0none\0"}
    offset = 128 + 4 + 12 * len(tags)
    directory, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        directory += name + struct.pack(">II", offset + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    header = bytearray(128)
    struct.pack_into(">I", header, 0, offset + len(body))
    struct.pack_into(">I4s4s4s", header, 8, 0x02400000, kind, space, connection)
    header[36:40] = b"acsp"
    struct.pack_into(">3i", header, 68, *(_fixed(v) for v in WHITE))
    return bytes(header) + directory + body


def _curve(gamma: float) -> bytes:
    return b"curv" + bytes(4) + struct.pack(">IHxx", 1, round(gamma * 256))


def _xyz(xyz: tuple[float, float, float]) -> bytes:
    return b"XYZ " + bytes(4) + struct.pack(">3i", *(_fixed(v) for v in xyz))


def _fixed(value: float) -> int:
    return round(value * 65536)
