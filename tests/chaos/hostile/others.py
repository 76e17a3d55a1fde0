"""GIF, BMP, WebP and AVIF files made of what decoders skip, at a cost for each piece."""

import io
import struct

from PIL import Image


def _saved(format_: str, side: int = 64) -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((side, side)).convert("RGB").save(out, format_)
    return out.getvalue()


def gif_comments(count: int = 10_000_000) -> bytes:
    """Return a GIF with empty comments before the first picture."""
    image = _saved("GIF")
    at = image.index(b"\x2c", 13 + 3 * (2 << (image[10] & 7)))
    return image[:at] + b"\x21\xfe\x00" * count + image[at:]


def gif_frames(count: int = 400_000) -> bytes:
    """Return a GIF with pictures of one pixel, one after the other."""
    head = b"GIF89a" + struct.pack("<HHBBB", 64, 64, 0x80, 0, 0) + bytes(6)
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00"
    return head + frame * count + b"\x3b"


def gif_sub_blocks(size: int = 30_000_000) -> bytes:
    """Return a GIF with the pixels of one picture in blocks of one byte."""
    head = b"GIF89a" + struct.pack("<HHBBB", 7000, 7000, 0x80, 0, 0) + bytes(6)
    picture = b"\x2c" + struct.pack("<HHHHB", 0, 0, 7000, 7000, 0) + b"\x02"
    return head + picture + b"\x01\x44" * (size // 2) + b"\x00\x3b"


def bmp_deltas(size: int = 32_000_000, side: int = 7000) -> bytes:
    """Return a BMP with run-length codes that move by nothing."""
    data = b"\x00\x02\x00\x00" * (size // 4) + b"\x00\x01"
    palette = bytes(1024)
    at = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + data


def bmp_runs(size: int = 32_000_000, side: int = 7000) -> bytes:
    """Return a BMP with run-length codes of one pixel, and very many ends of lines."""
    data = b"\x00\x00" * (size // 2) + b"\x00\x01"
    palette = bytes(1024)
    at = 14 + 40 + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(data), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + info + palette + data


def webp_chunks(count: int = 3_500_000) -> bytes:
    """Return a WebP with unknown empty chunks behind the pixels."""
    image = _saved("WEBP")
    extended = b"VP8X" + struct.pack("<I", 10) + bytes(4) + b"\x3f\0\0\x3f\0\0"
    body = b"WEBP" + extended + image[12:] + b"JUNK\0\0\0\0" * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_frames(count: int = 300_000) -> bytes:
    """Return a WebP with an animation of very many small pictures."""
    one = _saved("WEBP", 16)[12:]
    head = struct.pack("<I", 0)[:3] * 2 + b"\x0f\0\0\x0f\0\0\x01\0\0\0"
    frame = b"ANMF" + struct.pack("<I", len(head) + len(one)) + head + one
    extended = b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\x3f\0\0\x3f\0\0"
    animation = b"ANIM" + struct.pack("<I", 6) + bytes(6)
    count = min(count, 30_000_000 // len(frame))
    body = b"WEBP" + extended + animation + frame * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


def avif_boxes(count: int = 3_800_000) -> bytes:
    """Return an ordinary AVIF with empty boxes behind its file type."""
    image = _saved("AVIF")
    length = int.from_bytes(image[:4], "big")
    return (
        image[:length]
        + struct.pack(">I", 8)
        + (b"free" + struct.pack(">I", 8)) * count
        + (b"free" + image[length:])
    )


def large_avif(side: int = 7000) -> bytes:
    """Return a flat picture in a few thousand bytes that takes seconds to decode."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (9, 99, 199)).save(out, "AVIF", speed=10, quality=10)
    return out.getvalue()


def large_webp(side: int = 7000) -> bytes:
    """Return a flat picture in a few thousand bytes."""
    out = io.BytesIO()
    Image.new("RGB", (side, side), (9, 99, 199)).save(out, "WEBP", quality=1, method=0)
    return out.getvalue()


def flat(format_: str, width: int, height: int = 0) -> bytes:
    """Return a flat picture, square by default, in a few hundred thousand bytes at most."""
    options = {"WEBP": {"quality": 1, "method": 0}, "AVIF": {"speed": 10, "quality": 10}}
    out = io.BytesIO()
    picture = Image.new("RGB", (width, height or width), (9, 99, 199))
    picture.save(out, format_, **options.get(format_, {}))
    return out.getvalue()
