"""Small odd files of every format: lying counts, loops, odd codings, bombs in metadata.

Each is at most a few megabytes. They are asked for one after the other, many times.
"""

import io
import struct
import zlib
from collections.abc import Callable
from functools import partial

from PIL import Image

from tests.chaos.hostile import jpeg, png, profiles

_LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "'
    + b"A" * 1000
    + b'">'
    + b"".join(b'<!ENTITY %c "%b">' % (98 + n, b"&%c;" % (97 + n) * 20) for n in range(12))
    + b"]><x:xmpmeta xmlns:x='adobe:ns:meta/'>&m;</x:xmpmeta>"
)
"""Entities that make 4 TB of text (billion laughs)."""


def _saved(mode: str, side: int, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, kind, **options)
    return out.getvalue()


def _in_jpeg(marker: int, content: bytes) -> bytes:
    image = jpeg.plain()
    return image[:2] + jpeg.segment(marker, content[:65_530]) + image[2:]


def _in_png(name: bytes, content: bytes, side: int = 64) -> bytes:
    image = _saved("RGB", side, "PNG")
    return image[:33] + png.chunk(name, content) + image[33:]


def _profile(grid: int = 255, channels: int = 4) -> bytes:
    """Return a colour profile whose table claims `grid` to the power of `channels` entries."""
    table = b"mft2" + bytes(4) + bytes([channels, 3, grid, 0]) + bytes(36)
    table += struct.pack(">HH", 4096, 4096) + bytes(50_000)
    tags = struct.pack(">I", 1) + b"A2B0" + struct.pack(">II", 144, len(table))
    head = struct.pack(">I", 144 + len(table)) + b"lcms" + bytes.fromhex("04300000")
    head += b"prtr" + (b"CMYK" if channels == 4 else b"RGB ") + b"Lab " + bytes(12) + b"acsp"
    return (head.ljust(128, b"\0") + tags + table).ljust(144 + len(table), b"\0")


def _with_profile(mode: str, kind: str, profile: bytes) -> bytes:
    return _saved(mode, 64, kind, icc_profile=profile)


def _exif(entries: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
    block = struct.pack("<H", len(entries))
    block += b"".join(struct.pack("<HHII", *each) for each in entries)
    return b"Exif\0\0II*\0" + struct.pack("<I", 8) + block + struct.pack("<I", following)


def _tiff(tags: list[tuple[int, int, int, int]], data: bytes = b"", following: int = 0) -> bytes:
    """Return a TIFF whose pixels begin at byte 8, with its directory behind them."""
    body = data + bytes(len(data) & 1)
    directory = struct.pack("<H", len(tags))
    directory += b"".join(struct.pack("<HHII", *each) for each in sorted(tags))
    head = b"II*\0" + struct.pack("<I", 8 + len(body))
    return head + body + directory + struct.pack("<I", following)


def _grey(width: int, height: int, coding: int, size: int) -> list[tuple[int, int, int, int]]:
    return [
        *((256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, coding)),
        *((262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, size)),
    ]


def _tiff_coded(coding: int, side: int = 4000) -> bytes:
    data = b"\xff\xd8\xff\xd9" if coding == 7 else b"\x80\x0b\xff\x00" * 5000
    tags = _grey(side, side, coding, len(data))
    if coding in (2, 3, 4):
        tags = [(t, k, n, 1 if t == 258 else v) for t, k, n, v in tags]
    return _tiff(tags, data)


def _tiff_cycle(length: int = 3) -> bytes:
    """Return directories of which each leads to the next, and the last to the first."""
    size = 2 + 12 * 9 + 4
    places = [8 + 64 * 64 + n * size for n in range(length)]
    out = b"II*\0" + struct.pack("<I", places[0]) + bytes(64 * 64)
    for n in range(length):
        out += struct.pack("<H", 9)
        out += b"".join(struct.pack("<HHII", *each) for each in sorted(_grey(64, 64, 1, 4096)))
        out += struct.pack("<I", places[(n + 1) % length])
    return out


def _tiff_pages(count: int = 20_000) -> bytes:
    """Return a TIFF of many small pages."""
    size = 2 + 12 * 9 + 4
    out = b"II*\0" + struct.pack("<I", 8 + 4096) + bytes(4096)
    for n in range(count):
        following = 8 + 4096 + (n + 1) * size if n + 1 < count else 0
        out += struct.pack("<H", 9)
        out += b"".join(struct.pack("<HHII", *each) for each in sorted(_grey(64, 64, 1, 4096)))
        out += struct.pack("<I", following)
    return out


def _big_tiff() -> bytes:
    tags = [(256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 1 << 60, 16), (273, 16, 1 << 61, 16)]
    directory = struct.pack("<Q", len(tags))
    directory += b"".join(struct.pack("<HHQQ", *each) for each in tags) + bytes(8)
    return b"II+\0" + struct.pack("<HHQ", 8, 0, 16) + directory


def _apng(frames: int, lies: int) -> bytes:
    """Return an animated PNG of 4,000 x 4,000 whose frames are one pixel."""
    image = _saved("RGB", 4000, "PNG")
    at = image.index(b"IDAT") - 4
    control = png.chunk(b"acTL", struct.pack(">II", lies, 0))
    frame = struct.pack(">IIIIHHBB", 1, 1, 0, 0, 0, 1, 2, 1)
    data = zlib.compress(b"\0\0\0\0")
    parts = b"".join(
        png.chunk(b"fcTL", struct.pack(">I", 2 * n) + frame)
        + png.chunk(b"fdAT", struct.pack(">I", 2 * n + 1) + data)
        for n in range(frames)
    )
    return image[:at] + control + image[at:-12] + parts + image[-12:]


def _gif_frames(count: int = 300, side: int = 4000) -> bytes:
    """Return an interlaced GIF of many frames that each cover the canvas."""
    head = b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6)
    control = b"\x21\xf9\x04\x0c\0\0\0\0"
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, side, side, 0x40) + b"\x02\x02\x4c\x01\0"
    return head + (control + picture) * count + b"\x3b"


def _mpo(count: int = 3000) -> bytes:
    """Return as many JPEGs as an index names, each of which is the first one."""
    image = jpeg.plain()
    entries = struct.pack("<H", 3) + struct.pack("<HHI4s", 0xB000, 7, 4, b"0100")
    entries += struct.pack("<HHII", 0xB001, 4, 1, count)
    entries += struct.pack("<HHII", 0xB002, 7, 16 * count, 50) + bytes(4)
    pictures = struct.pack("<IIIHH", 0, len(image), 0, 0, 0) * count
    index = b"MPF\0II*\0" + struct.pack("<I", 8) + entries + pictures
    return image[:2] + jpeg.segment(0xE2, index[:65_530]) + image[2:] + image * 200


def _riff(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = (n + struct.pack("<I", len(c)) + c + bytes(len(c) & 1) for n, c in chunks)
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webp_alpha(filters: int) -> bytes:
    """Return a picture of 5,000 x 5,000 whose alpha says that it is raw and has a byte."""
    side = struct.pack("<I", 4999)[:3]
    coded = _saved("RGB", 5000, "WEBP")[20:]
    extended = b"\x10\0\0\0" + side * 2
    return _riff((b"VP8X", extended), (b"ALPH", bytes([filters, 0])), (b"VP8 ", coded))


def _bmp(width: int, height: int, bits: int, coding: int, data: bytes) -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, coding, 0, 0, 0, 0, 0)
    masks = struct.pack("<IIII", *[0xFFFFFFFF] * 4) if coding in (3, 6) else b""
    palette = bytes(4 << bits) if bits <= 8 else b""
    start = 14 + len(info) + len(masks) + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    return head + info + masks + palette + data


def _frame_of(marker: int, precision: int, components: int, side: int = 65_500) -> bytes:
    """Return a JPEG whose frame header has these odd values, and little else."""
    parts = b"".join(bytes([n & 255, 0x44, n & 3]) for n in range(1, components + 1))
    frame = struct.pack(">BHHB", precision, side, side, components & 255) + parts
    scan = bytes([min(components, 4)]) + b"".join(
        bytes([n, 0]) for n in range(1, min(components, 4) + 1)
    )
    return b"\xff\xd8" + jpeg.segment(marker, frame) + jpeg.segment(0xDA, scan + b"\0\x3f\0")


FILES: dict[str, Callable[[], bytes]] = {
    **{
        f"jpeg_frame_{marker:x}_{precision}_{n}": partial(_frame_of, marker, precision, n)
        for marker in (0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCB, 0xDE)
        for precision, n in ((8, 3), (12, 3), (16, 4), (8, 255), (0, 0))
    },
    "jpeg_cmyk": lambda: _saved("CMYK", 4000, "JPEG"),
    "jpeg_cmyk_profile": lambda: _with_profile("CMYK", "JPEG", _profile()),
    "jpeg_stages_profile": lambda: _with_profile("RGB", "JPEG", profiles.of_stages()),
    "jpeg_rgb_profile": lambda: _with_profile("RGB", "JPEG", _profile(255, 3)),
    "png_profile": lambda: _with_profile("RGB", "PNG", _profile(255, 3)),
    "webp_profile": lambda: _with_profile("RGB", "WEBP", _profile(255, 3)),
    "tiff_profile": lambda: _with_profile("CMYK", "TIFF", _profile()),
    "avif_profile": lambda: _with_profile("RGB", "AVIF", _profile(255, 3)),
    "jpeg_laughs": lambda: _in_jpeg(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + _LAUGHS),
    "png_laughs": lambda: _in_png(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + _LAUGHS),
    "webp_laughs": lambda: _saved("RGB", 64, "WEBP", xmp=_LAUGHS),
    "exif_count": lambda: _in_jpeg(0xE1, _exif([(0x0112, 3, 0xFFFFFFFF, 26)])),
    "exif_offset": lambda: _in_jpeg(0xE1, _exif([(0x0112, 5, 1, 0xFFFFFFF0)])),
    "exif_next": lambda: _in_jpeg(0xE1, _exif([(0x0112, 3, 1, 6)], 8)),
    "exif_maker": lambda: _in_jpeg(0xE1, _exif([(0x8769, 4, 1, 8), (0x927C, 7, 1 << 31, 8)])),
    "exif_many": lambda: _in_jpeg(0xE1, _exif([(0x0112, 3, 1, 6)] * 5000)),
    "png_exif": lambda: _in_png(b"eXIf", _exif([(0x0112, 4, 0x3FFFFFFF, 8)])[6:]),
    "png_text": lambda: _in_png(b"zTXt", b"a\0\0" + zlib.compress(bytes(60_000_000), 9)),
    "png_gamma": lambda: _in_png(b"gAMA", bytes(4)),
    "png_palette": lambda: _in_png(b"PLTE", b"\1" * 3_000_000),
    "png_transparent": lambda: _in_png(b"tRNS", bytes(1_000_000)),
    "png_splt": lambda: _in_png(b"sPLT", b"a\0\x10" + bytes(3_000_000)),
    "png_frames": lambda: _apng(3000, 3000),
    "png_lying_frames": lambda: _apng(1, 0x7FFFFFFF),
    "png_1_bit": lambda: _saved("1", 7000, "PNG"),
    "png_16_bits": lambda: _saved("I;16", 6000, "PNG"),
    "gif_frames": _gif_frames,
    "mpo": _mpo,
    "tiff_cycle": _tiff_cycle,
    "tiff_pages": _tiff_pages,
    "tiff_big": _big_tiff,
    **{
        f"tiff_coding_{coding}": partial(_tiff_coded, coding)
        for coding in (2, 3, 4, 5, 6, 7, 8, 32773, 32946, 34677, 34925, 50000, 50001, 65535)
    },
    "tiff_sub": lambda: _tiff([*_grey(64, 64, 1, 4096), (330, 4, 1, 8 + 4096)], bytes(4096)),
    "tiff_exif": lambda: _tiff([*_grey(64, 64, 1, 4096), (34665, 4, 1, 8 + 4096)], bytes(4096)),
    "tiff_bits": lambda: _tiff([(258, 3, 60_000, 8), *_grey(64, 64, 1, 4096)], bytes(200_000)),
    "tiff_samples": lambda: _tiff([*_grey(64, 64, 1, 4096), (338, 3, 65_535, 8)], bytes(200_000)),
    "webp_alpha": lambda: _webp_alpha(0),
    "webp_alpha_packed": lambda: _webp_alpha(1),
    "webp_no_picture": lambda: _riff((b"VP8X", b"\x12\0\0\0" + b"\xff\xff\xff" * 2)),
    "bmp_masks": lambda: _bmp(64, 64, 32, 3, bytes(64 * 64 * 4)),
    "bmp_runs": lambda: _bmp(7000, 7000, 8, 1, b"\xff\x01" * 1_000_000),
    "bmp_runs_4": lambda: _bmp(7000, 7000, 4, 2, b"\xff\x01" * 1_000_000),
    "bmp_jpeg": lambda: _bmp(64, 64, 0, 4, jpeg.plain()),
    "bmp_top_down": lambda: _bmp(7000, -7000, 1, 0, bytes(100)),
    "avif_cut": lambda: _saved("RGB", 5000, "AVIF", speed=10)[:-50],
}
"""Odd files by name."""
