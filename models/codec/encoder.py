"""Encode pixels as image files: options, encoders, flattening, and versions of the libraries."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Literal

import numpy as np
import simplejpeg
from PIL import Image as PillowImage
from PIL import features

from models.codec import avif_grid
from models.codec.animation import Animation, write_apng, write_gif, write_webp
from models.codec.formats import ANIMATED, ENCODABLE, ImageFormat
from models.codec.metadata import copyright_exif, kept
from models.codec.pillow import writing_at_once
from models.codec.rows import boxes
from models.domain.errors import FieldError, InvalidParameter, Unprocessable
from models.domain.image import Image, Jpeg, Pixels

Chroma = Literal["420", "422", "444"]
"""Chroma halved in both directions, in width alone, or in full."""

_DEFAULT_QUALITY: Mapping[ImageFormat, int] = {
    ImageFormat.JPEG: 90,
    ImageFormat.WEBP: 80,
    ImageFormat.AVIF: 75,
}

_DEFAULT_CHROMA: Chroma = "420"

OPTIONS_OF: Mapping[str, tuple[ImageFormat, ...]] = {
    "progressive": (ImageFormat.JPEG,),
    "chroma": (ImageFormat.JPEG, ImageFormat.AVIF),
    "lossless": (ImageFormat.WEBP,),
    "png_level": (ImageFormat.PNG,),
    "avif_speed": (ImageFormat.AVIF,),
    "metadata": tuple(each for each in ENCODABLE if each is not ImageFormat.GIF),
    "max_bytes": (*_DEFAULT_QUALITY,),
    "min_quality": (*_DEFAULT_QUALITY,),
    "frames": ANIMATED,
}
"""The options that only some formats have."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """The options of an encoder; None leaves a value to `models.codec.encoder`.

    `quality` (1…100) has no effect on lossless files: PNG, and WebP that is `lossless`. `png_level`
    is zlib's, 0 (stored) to 9 (smallest); `avif_speed` 0 (smallest) to 10 (fastest). `metadata`
    states whether the source's EXIF is kept, as far as it is still true; `frames`, whether the file
    has all frames of an animation. With `max_bytes` the
    quality is lowered until the file fits, at most to `min_quality`, by default 1.
    """

    quality: int | None = None
    progressive: bool = False
    chroma: Chroma | None = None
    lossless: bool = False
    png_level: int | None = None
    avif_speed: int | None = None
    metadata: Literal["strip", "keep"] = "strip"
    max_bytes: int | None = None
    min_quality: int | None = None
    frames: Literal["first", "all"] = "first"

    def quality_for(self, format: ImageFormat) -> int:
        """Return the quality, by default that of `format`, which is JPEG, WebP or AVIF."""
        return self.quality or _DEFAULT_QUALITY[format]

    @property
    def subsampling(self) -> Chroma:
        """Return the chroma subsampling, by default 4:2:0."""
        return self.chroma or _DEFAULT_CHROMA

    def check(self, format: ImageFormat) -> None:
        """Raise InvalidParameter with the path of every option that `format` does not have."""
        errors = []
        if format not in ENCODABLE:
            problem = f"{format} is read but not written; ask for one of {', '.join(ENCODABLE)}"
            errors.append(FieldError("format", problem, str(format)))
        for name, formats in OPTIONS_OF.items():
            given = getattr(self, name)
            if format not in formats and given != getattr(PLAIN, name):
                errors.append(FieldError(name, _of_another(formats, format), given))
        if self.min_quality is not None and self.max_bytes is None:
            problem = "an option beside max_bytes; give both or leave it out"
            errors.append(FieldError("min_quality", problem, self.min_quality))
        elif not errors and self.max_bytes is not None and self.lossless:
            problem = "a lossless file has no quality to lower; leave out max_bytes or lossless"
            errors.append(FieldError("max_bytes", problem, self.max_bytes))
        elif self.min_quality and not errors and self.min_quality > self.quality_for(format):
            problem = f"at most the quality is needed, which is {self.quality_for(format)}"
            errors.append(FieldError("min_quality", problem, self.min_quality))
        if errors:
            raise InvalidParameter(f"{errors[0].path}: {errors[0].message}", errors)


PLAIN = Encoding()
"""No options."""


def _of_another(formats: tuple[ImageFormat, ...], chosen: ImageFormat) -> str:
    having = " and ".join(each.name for each in formats)
    return f"an option of {having}, and the answer is to be {chosen.name}; give a format or omit it"


WHITE = (255, 255, 255)

STRIPE = 1 << 20
"""Pixels that are flattened or copied at a time: flattening takes 17 bytes for each of them."""


def flatten(
    image: Image,
    background: tuple[int, int, int] = WHITE,
    taken: Callable[[Pixels], None] = lambda _pixels: None,
) -> Image:
    """Return `image` as RGB: alpha composited over `background`, grey repeated, RGB unchanged.

    Per channel (c·a + b·(255 − a)) / 255, rounded to nearest: Pillow's `alpha_composite` over an
    opaque background computes it. `taken` is called with pixels (n, 4) that are needed no more.
    """
    if image.channels == 3:
        return image
    if image.channels == 1:
        return Image(np.repeat(image.pixels, 3, axis=2))
    # Each pixel is computed by itself, so the stripes need not be whole rows.
    stored = np.ascontiguousarray(image.pixels).reshape(-1, 4)
    flat = np.empty((len(stored), 3), np.uint8)
    for start in range(0, len(stored), STRIPE):
        stripe = stored[start : start + STRIPE]
        shown = PillowImage.fromarray(stripe[np.newaxis])
        behind = PillowImage.new("RGBA", shown.size, (*background, 255))
        over = PillowImage.alpha_composite(behind, shown).convert("RGB")
        flat[start : start + STRIPE] = np.asarray(over)[0]
        taken(stripe)
    return Image(flat.reshape(image.height, image.width, 3))


MAX_SIDE: Mapping[ImageFormat, int] = {
    ImageFormat.GIF: 65_535,
    ImageFormat.JPEG: 65_500,  # libjpeg's limit; the format's is 65,535
    ImageFormat.PNG: 2**31 - 1,
    ImageFormat.WEBP: 16_383,
    ImageFormat.AVIF: 32_768,  # of libavif when it decodes; the format's is 65,536
}
"""The longest side, in pixels, that a file of the format can hold and that can be read again."""

# Chosen by tests/bench/encode.py.
_RUN_LENGTH = {"compress_level": 1, "compress_type": 3}  # zlib's Z_RLE, which has no levels
_AVIF_SPEED = 9
_WEBP_METHOD = 2
_LOSSLESS = {"lossless": True, "method": 0, "quality": 0, "exact": True}

_MOST_BYTES_A_PIXEL = 6
"""Bytes a pixel of a JPEG in full chroma, at most, as TurboJPEG's tj3JPEGBufSize counts."""


def encode(
    image: Image,
    format: ImageFormat,
    encoding: Encoding = PLAIN,
    *,
    copyright: str | None = None,
    exif: bytes | None = None,
    taken: Callable[[Pixels], None] = lambda _rows: None,
    animation: Animation | None = None,
) -> bytes:
    """Return `image` as a file of `format` with the options `encoding`; sRGB, without a profile.

    By default JPEG is baseline 4:2:0, quality 90 (80 for WebP, 75 for AVIF). Grey stays grey in all
    formats but WebP; for a JPEG, alpha is flattened on white. Of metadata the `copyright` is
    written, or, with metadata="keep", the part of the source's `exif` that `kept` of `metadata.py`
    returns. `taken` is called with pixels of a large image that the encoder has copied: the caller
    may give their memory back. With an `animation`, the image has its frames one below the other,
    and the format is one of `ANIMATED`. A GIF has no EXIF: its copyright is a comment.

    `Encoding.check` has accepted the options for this format. Raises Unprocessable for an image
    with a side too long for the format.
    """
    height = image.height // (len(animation.milliseconds) if animation else 1)
    if max(image.width, height) > MAX_SIDE[format]:
        raise Unprocessable(
            f"the image has {image.width} × {height} pixels and a {format.name} at most "
            f"{MAX_SIDE[format]:,} on a side; ask for png, or send it smaller"
        )
    block = _metadata(image.width, height, encoding, copyright, exif)
    if format is ImageFormat.GIF:
        return write_gif(image.pixels, animation or Animation((0.0,), 1), copyright)
    if format is ImageFormat.JPEG:
        return _with_exif(_jpeg(image, encoding, taken), block)

    def encode_part(pixels: Pixels) -> bytes:
        return _by_pillow(pixels, format, _options(pixels, format, encoding))

    if animation is not None:
        write = write_apng if format is ImageFormat.PNG else write_webp
        return write(image.pixels, animation, encode_part, block)
    if format is ImageFormat.AVIF and image.n_pixels > avif_grid.WHOLE:
        if avif_grid.needs_full_chroma(image.height, image.width):
            encoding = replace(encoding, chroma="444")
        return avif_grid.encode_grid(image.pixels, encode_part, block)
    options = {**_options(image.pixels, format, encoding), **({"exif": block} if block else {})}
    return _by_pillow(image.pixels, format, options, taken)


def encode_within(
    image: Image, format: ImageFormat, encoding: Encoding = PLAIN, **more: Any
) -> tuple[bytes, int | None]:
    """Return the file of `encode` and None, or a file of at most `max_bytes` and its quality.

    The quality is the highest that fits. Bisection finds it in at most 8 files; where a size does
    not grow with the quality, as rarely by some bytes, a higher quality may fit too. `more` are the
    further arguments of `encode`. Raises Unprocessable, which states the smallest size.
    """
    if encoding.max_bytes is None:
        return encode(image, format, encoding, **more), None
    more.pop("taken", None)  # the pixels are read again
    low, high = encoding.min_quality or 1, encoding.quality_for(format)
    found, smallest, quality = None, 0, high  # most files fit as they are asked for
    while low <= high:
        file = encode(image, format, replace(encoding, quality=quality), **more)
        if len(file) <= encoding.max_bytes:
            found, low = (file, quality), quality + 1
        else:
            smallest, high = len(file), quality - 1
        quality = (low + high) // 2
    if found is None:
        raise Unprocessable(
            f"no {format.name} of this image fits into {encoding.max_bytes:,} bytes: at quality "
            f"{low} it has {smallest:,}; allow more bytes or a lower min_quality, or resize it"
        )
    return found


def finished(
    jpeg: Jpeg,
    encoding: Encoding = PLAIN,
    *,
    copyright: str | None = None,
    exif: bytes | None = None,
) -> bytes:
    """Return the file of a JPEG that was encoded elsewhere, with the metadata of `encode`."""
    block = _metadata(jpeg.width, jpeg.height, encoding, copyright, exif)
    return _with_exif(jpeg.data.tobytes(), block)


def _metadata(
    width: int, height: int, encoding: Encoding, copyright_: str | None, exif: bytes | None
) -> bytes:
    """Return an EXIF block, empty if there is no metadata."""
    block = None
    if exif and encoding.metadata == "keep":
        block = kept(exif, width, height, copyright_)
    return block or (copyright_exif(copyright_) if copyright_ else b"")


def _jpeg(image: Image, encoding: Encoding, taken: Callable[[Pixels], None]) -> bytes:
    """Encode by simplejpeg, with the same bytes on every machine, or progressive by Pillow."""
    grey = image.channels == 1
    pixels = np.ascontiguousarray(image.pixels if grey else flatten(image, taken=taken).pixels)
    quality, chroma = encoding.quality_for(ImageFormat.JPEG), encoding.subsampling
    if not encoding.progressive:
        space, stored = ("GRAY", "Gray") if grey else ("RGB", chroma)
        return bytes(simplejpeg.encode_jpeg(pixels, quality, space, stored))
    options = {"quality": quality, "progressive": True, **({} if grey else _subsampling(chroma))}
    try:
        return _by_pillow(pixels, ImageFormat.JPEG, options)
    except OSError:
        # Pillow needs room for the whole file, and noise does not fit into what it sets aside.
        with writing_at_once(_MOST_BYTES_A_PIXEL * pixels.shape[0] * pixels.shape[1] + 2048):
            return _by_pillow(pixels, ImageFormat.JPEG, options)


def _options(pixels: Pixels, format_: ImageFormat, encoding: Encoding) -> Mapping[str, Any]:
    """Return Pillow's options for a format that is not JPEG."""
    if format_ is ImageFormat.PNG:
        level = encoding.png_level
        return _RUN_LENGTH if level is None else {"compress_level": level}
    quality = encoding.quality_for(format_)
    if format_ is ImageFormat.WEBP:
        return _LOSSLESS if encoding.lossless else {"quality": quality, "method": _WEBP_METHOD}
    coloured = pixels.shape[2] > 1
    return {
        **(_subsampling(encoding.subsampling) if coloured else {}),
        "quality": quality,
        "speed": _AVIF_SPEED if encoding.avif_speed is None else encoding.avif_speed,
        "max_threads": 1,  # the threads of the caller's pool share the cores already
    }


def _subsampling(chroma: Chroma) -> dict[str, str]:
    return {"subsampling": ":".join(chroma)}


def _by_pillow(
    pixels: Pixels,
    format_: ImageFormat,
    options: Mapping[str, Any],
    taken: Callable[[Pixels], None] = lambda _rows: None,
) -> bytes:
    file = BytesIO()
    if format_ is ImageFormat.AVIF:
        _Borrowed(np.ascontiguousarray(pixels)).save(file, format_.name, **options)
        return file.getvalue()
    coloured = format_ is ImageFormat.WEBP  # which has no grey
    _picture(pixels, taken, coloured=coloured).save(file, format_.name, **options)
    return file.getvalue()


LARGE = 8 << 20
"""Pixels of an image that Pillow copies stripe by stripe."""


def _picture(
    pixels: Pixels, taken: Callable[[Pixels], None], *, coloured: bool = False
) -> PillowImage.Image:
    """Return pixels as a picture of Pillow; `taken` is called with rows that are needed no more.

    Pillow copies pixels of several channels, so a large image is copied stripe by stripe.
    `coloured`: a large grey image becomes RGB meanwhile, of which an encoder would make a copy.
    """
    height, width, channels = pixels.shape
    shown = pixels[..., 0] if channels == 1 else pixels
    if width * height < LARGE:
        return PillowImage.fromarray(shown)
    mode = {1: "RGB" if coloured else "L", 3: "RGB", 4: "RGBA"}[channels]
    whole = PillowImage.new(mode, (width, height), None)
    for left, top, right, bottom in boxes(width, height, STRIPE):
        whole.paste(PillowImage.fromarray(shown[top:bottom, left:right]), (left, top))
        taken(pixels[top:bottom, left:right])
    return whole


class _Borrowed(PillowImage.Image):
    """An image for Pillow's writer of AVIF, which asks for nothing but size, mode and bytes.

    It gives the array itself as its bytes. Pillow's own image and its bytes would be two copies of
    the pixels, beside an encoder that needs 21 bytes for each pixel.
    """

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        height, width, channels = pixels.shape
        self._mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
        self._size = width, height
        self._pixels = pixels

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> Any:  # noqa: ARG002 (as Pillow calls)
        """Return the array."""
        return self._pixels


def _with_exif(jpeg: bytes, exif: bytes) -> bytes:
    """Return `jpeg` with an APP1 segment after its JFIF header, which has to come first."""
    if not exif:
        return jpeg
    start = 4 + int.from_bytes(jpeg[4:6], "big")
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    return jpeg[:start] + segment + jpeg[start:]


_FEATURES = ("pil", "libjpeg_turbo", "zlib", "zlib_ng", "libtiff", "webp", "avif", "littlecms2")


@functools.cache
def codec_versions() -> Mapping[str, str | None]:
    """Return the version of each library by its name, None for a missing library, and the form of
    AVIF grids.

    Another version of an encoder may write different bytes for the same pixels.
    """
    found = {name: features.version(name) for name in _FEATURES}
    return {**found, "simplejpeg": simplejpeg.__version__, "avif_grid": avif_grid.FORM}
