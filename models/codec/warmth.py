"""Load the modules that decoding loads on its first use, for processes that may open no file
later.
"""

import codecs
from io import BytesIO
from typing import Any

# Pillow and its plugins import these inside functions.
from PIL import (  # noqa: F401
    AvifImagePlugin,
    ImageCms,
    ImageColor,
    ImageFilter,
    ImagePalette,
    MpoImagePlugin,
)
from PIL import Image as PillowImage

from models.codec.decode import decode
from models.codec.encoder import Encoding, encode
from models.codec.formats import ENCODABLE, ImageFormat
from models.domain.image import Image

_TEXT_CODECS = ("ascii", "latin-1", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "unicode_escape")
_SIDE = 16


def warm_up() -> None:
    """Decode and encode a small picture in every format; AVIF uses a single thread."""
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    for name in _TEXT_CODECS:
        codecs.lookup(name)
    for data in _pictures():
        image = decode(data, max_pixels=_SIDE * _SIDE).image
        assert isinstance(image, Image)
        for format_ in ENCODABLE:
            encode(image, format_)
        encode(image, ImageFormat.JPEG, Encoding(progressive=True))


def _pictures() -> list[bytes]:
    drawn = PillowImage.linear_gradient("L").resize((_SIDE, _SIDE)).convert("RGB")
    exif = PillowImage.Exif()
    exif[0x0112] = 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("RGB", "JPEG", {"exif": exif, "icc_profile": profile}),
        ("L", "JPEG", {"progressive": True}),
        ("RGB", "PNG", {"exif": exif, "icc_profile": profile}),
        ("P", "PNG", {"transparency": 3}),
        ("I;16", "PNG", {}),
        ("RGB", "WEBP", {"exif": exif}),
        ("P", "GIF", {"transparency": 3, "comment": b"a"}),
        ("RGB", "BMP", {}),
        ("RGB", "TIFF", {"exif": exif}),
        ("F", "TIFF", {"compression": "tiff_lzw"}),
        ("CMYK", "TIFF", {"compression": "jpeg"}),
    ]
    if ImageFormat.AVIF in ENCODABLE:
        kinds.append(("RGB", "AVIF", {"exif": exif, "max_threads": 1}))
    pictures = []
    for mode, format_, options in kinds:
        file = BytesIO()
        drawn.convert("I" if mode == "I;16" else mode).convert(mode).save(file, format_, **options)
        pictures.append(file.getvalue())
    return pictures
