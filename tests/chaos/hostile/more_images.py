"""Files that stay below one bound of their format and try another: few parts, but costly ones."""

import io
import struct

from PIL import Image

_SIDE = 7000


def gif_lzw(side: int = _SIDE) -> bytes:
    """Return a picture of 49 megapixels in the longest strings that LZW has."""
    out = io.BytesIO()
    Image.new("P", (side, side)).save(out, "GIF")
    return out.getvalue()


def lossless_webp(side: int = _SIDE) -> bytes:
    """Return a flat lossless picture of 49 megapixels with alpha."""
    out = io.BytesIO()
    Image.new("RGBA", (side, side), (9, 99, 199, 9)).save(out, "WEBP", lossless=True, method=0)
    return out.getvalue()


def avif_lying_size(side: int = 7000) -> bytes:
    """Return a picture that says it is 64 by 64 while its coded frame is 49 megapixels."""
    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "AVIF", speed=10, quality=10)
    data = bytearray(out.getvalue())
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", 64, 64)
    return bytes(data)
