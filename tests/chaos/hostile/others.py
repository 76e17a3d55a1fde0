"""GIF, BMP, WebP and AVIF files made of what decoders skip, at a cost for each piece."""

import io
import struct

from PIL import Image


def _saved(format_: str, side: int = 64) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert("RGB").save(out, format_)
    return out.getvalue()


def bmp_deltas(size: int = 32_000_000, side: int = 7000) -> bytes:
    """Return a BMP with run-length codes that move by nothing."""
    data = b"\x00\x02\x00\x00" * (size // 4) + b"\x00\x01"
    palette = bytes(1024)
    at = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + data


def flat(format_: str, width: int, height: int = 0) -> bytes:
    """Return a flat picture, square by default, in a few hundred thousand bytes at most."""
    options = {"WEBP": {"quality": 1, "method": 0}, "AVIF": {"speed": 10, "quality": 10}}
    out = io.BytesIO()
    picture = Image.new("RGB", (width, height or width), (9, 99, 199))
    picture.save(out, format_, **options.get(format_, {}))
    return out.getvalue()
