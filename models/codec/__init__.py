"""Decode and encode image files; only this folder knows the formats.

Start reading in `decode.py` and `encoding/encoder.py`; `bounds/` refuses costly files before.
May import `models.domain`, numpy, Pillow and simplejpeg.
"""

from models.codec.decode import Decoded, Opened, decode, open_file, open_plain, pixels_of
from models.codec.description import Description
from models.codec.encoding.encode_cost import check_encode_cost
from models.codec.encoding.encode_memory import check_encode_memory, encode_memory
from models.codec.encoding.encode_options import Chroma, Encoding
from models.codec.encoding.encoder import encode, finished
from models.codec.encoding.flatten import flatten
from models.codec.formats import ENCODABLE, OUTPUT_FORMATS, ImageFormat, identify
from models.codec.jpeg import may_be_baseline
from models.codec.jpeg_passthrough import encoded
from models.codec.memory_cost import check_decode_memory, decode_memory, open_memory
from models.codec.probe import ImageInfo, probe
from models.codec.size_hint import claimed_pixels
from models.codec.warmth import PICTURE, warm_up

__all__ = [
    "ENCODABLE",
    "OUTPUT_FORMATS",
    "PICTURE",
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
    "encoded",
    "finished",
    "flatten",
    "identify",
    "may_be_baseline",
    "open_file",
    "open_memory",
    "open_plain",
    "pixels_of",
    "probe",
    "warm_up",
]
