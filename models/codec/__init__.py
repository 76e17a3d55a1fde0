"""Image files to pixels and back; the only place that knows the formats."""

from models.codec.decode import Decoded, decode, pixels_of
from models.codec.encode import encode, finished
from models.codec.encoded import encoded
from models.codec.encoding import Chroma, Encoding
from models.codec.flatten import flatten
from models.codec.formats import ENCODABLE, ImageFormat
from models.codec.probe import ImageInfo, probe

__all__ = [
    "ENCODABLE",
    "Chroma",
    "Decoded",
    "Encoding",
    "ImageFormat",
    "ImageInfo",
    "decode",
    "encode",
    "encoded",
    "finished",
    "flatten",
    "pixels_of",
    "probe",
]
