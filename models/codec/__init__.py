"""Decode and encode image files; only this folder knows the formats.

Start reading in `decode.py` and `encoder.py`. The module of each format bounds the cost of its
files.
May import `models.domain`, numpy, Pillow and simplejpeg.
"""

from models.codec.animation import Animation
from models.codec.costs import (
    check_decode_memory,
    check_encode_cost,
    check_encode_memory,
    claimed_pixels,
    decode_memory,
    encode_memory,
    open_memory,
)
from models.codec.decode import Decoded, Opened, decode, encoded, open_file, open_plain, pixels_of
from models.codec.description import Description
from models.codec.encoder import Chroma, Encoding, encode, encode_within, finished, flatten
from models.codec.formats import ENCODABLE, OUTPUT_FORMATS, ImageFormat, identify
from models.codec.jpeg import may_be_baseline
from models.codec.probe import ImageInfo
from models.codec.warmth import warm_up

__all__ = [
    "ENCODABLE",
    "OUTPUT_FORMATS",
    "Animation",
    "Chroma",
    "Decoded",
    "Description",
    "Encoding",
    "ImageFormat",
    "ImageInfo",
    "Opened",
    "check_decode_memory",
    "check_encode_cost",
    "check_encode_memory",
    "claimed_pixels",
    "decode",
    "decode_memory",
    "encode",
    "encode_memory",
    "encode_within",
    "encoded",
    "finished",
    "flatten",
    "identify",
    "may_be_baseline",
    "open_file",
    "open_memory",
    "open_plain",
    "pixels_of",
    "warm_up",
]
