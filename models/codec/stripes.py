"""Convert a decoded picture to upright sRGB pixels stripe by stripe.

Pillow keeps four bytes for each pixel of a colour image, and copies it once more for every
conversion and twice to hand its pixels out. In stripes a single copy of the whole image exists
beside the result. A stripe has several rows, or a part of a row where rows are very long
(`rows.py`). All conversions here work on each pixel by itself, so stripes do not change the result.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image as PillowImage
from PIL.ImageFile import ImageFile

from models.codec.colour import INVERTED, float_scale, is_grey, per_band, simplified, to_srgb
from models.codec.heif import HeifPicture
from models.codec.rows import FRAME, SHOWN, Box, PictureRows, boxes, cropped, framed, rows_of
from models.domain.image import Pixels

STRIPE = 1 << 20
"""Largest number of pixels that are converted at a time. Ordinary photos take one step."""

_NEGATIVE = [*range(255, -1, -1)]

NewPixels = Callable[[tuple[int, int, int]], Pixels]
"""Return a new uint8 array of this shape, which is overwritten wholly."""


def _raw(data: bytes | Pixels, image: ImageFile, raw_mode: str) -> PictureRows:
    """Return the rows of an image whose decoder gave bytes or pixels, which Pillow would copy."""
    (width, height), mode, info = image.size, image.mode, dict(image.info)
    if isinstance(data, bytes):
        data = np.frombuffer(data, np.uint8).reshape(height, width, len(raw_mode))
    pixels = data

    def crop(box: Box) -> PillowImage.Image:
        # No copy of whole rows, or of a part of one.
        part = np.ascontiguousarray(pixels[box.top : box.bottom, box.left : box.right])
        shape = box.right - box.left, box.bottom - box.top
        cut = PillowImage.frombuffer(mode, shape, part.reshape(-1), "raw", raw_mode, 0, 1)
        cut.info = dict(info)
        return cut

    return PictureRows(image.size, mode, crop)


def loaded(image: ImageFile) -> PictureRows:
    """Return the rows of an image; raises the errors of Pillow for a file that is corrupt.

    The decoders of AVIF and WebP are asked directly: Pillow's `load` would keep the decoder with
    its two canvases, the bytes that it gave, and the copy of these bytes, all at the same time.
    """
    if isinstance(image, HeifPicture):
        return _raw(image.decoded(), image, image.raw_mode)
    decoder: Any = getattr(image, "_decoder", None)
    if image.format == "AVIF" and hasattr(decoder, "get_frame"):
        data = decoder.get_frame(0)[0]
        image._decoder = None  # type: ignore[attr-defined]  # Pillow's private one
        raw = _raw(data, image, image.mode)
        return cropped(raw, image.info[SHOWN]) if SHOWN in image.info else raw
    if image.format == "WEBP" and hasattr(decoder, "get_next"):
        frame = decoder.get_next()
        if frame is None:
            raise EOFError("failed to decode the first frame of a WebP file")
        image._decoder = None  # type: ignore[attr-defined]  # as above
        raw_mode: str = image.rawmode  # type: ignore[attr-defined]  # no stub
        canvas = _raw(frame[0], image, raw_mode)
        return framed(canvas, image.info[FRAME]) if FRAME in image.info else canvas
    frame = frame_of(image)
    image.load()
    if image.format == "BMP" and image.mode == "RGBA":
        extremes: Any = image.getextrema()
        if extremes[3] == (0, 0):  # the program that wrote the file did not know of alpha
            image.putalpha(255)
    rows = rows_of(image)
    return rows if frame is None else framed(rows, frame)


def frame_of(image: ImageFile) -> Box | None:
    """Return the first frame of an animation that leaves pixels open, else None."""
    if isinstance(first := image.info.get(FRAME), Box):
        return first
    if image.format != "GIF" or not image.tile or "transparency" in image.info:
        return None
    left, top, right, bottom = image.tile[0].extents or (0, 0, *image.size)
    frame = Box(left, top, right, bottom)
    return None if frame == (0, 0, *image.size) else frame


def converted(
    rows: PictureRows, icc_profile: bytes | None, orientation: int, new_pixels: NewPixels
) -> Pixels:
    """Return the pixels in sRGB, turned as EXIF `orientation` (1…8) requires.

    A large image is written into an array of `new_pixels`, a small image may be in any array.
    """
    (width, height), grey, crop = rows.size, is_grey(rows.mode), simple_rows(rows).crop
    target: Pixels | None = None
    for box in boxes(width, height, STRIPE):
        stripe = plain(to_srgb(crop(box), icc_profile, grey=grey))
        if stripe.shape[:2] == (height, width):
            return upright(stripe, orientation)
        if target is None:
            turned = (width, height) if orientation >= 5 else (height, width)
            target = new_pixels((*turned, stripe.shape[2]))
            stored = _as_stored(target, orientation)
        stored[box.top : box.bottom, box.left : box.right] = _items(stripe)
    assert target is not None
    return target


def simple_rows(rows: PictureRows) -> PictureRows:
    """Return the rows of the same picture as L, RGB, RGBA or CMYK; `mode` stays the stored mode."""
    floats = boxes(*rows.size, STRIPE) if rows.mode == "F" else ()
    scale = max((float_scale(rows.crop(each)) for each in floats), default=1.0)

    def crop(box: Box) -> PillowImage.Image:
        part = rows.crop(box)
        simple = simplified(part, scale)
        return simple.point(per_band(_NEGATIVE, simple.mode)) if INVERTED in part.info else simple

    return PictureRows(rows.size, rows.mode, crop)


def convert_in_place(pixels: Pixels, icc_profile: bytes | None, *, grey: bool) -> None:
    """Convert the stored pixels of a JPEG, grey or RGB, to sRGB."""
    step = max(1, STRIPE // pixels.shape[1])
    for top in range(0, len(pixels), step):
        stripe = pixels[top : top + step]
        stored = PillowImage.fromarray(stripe[..., 0] if grey else stripe)
        stripe[:] = plain(to_srgb(stored, icc_profile, grey=grey))


def plain(image: PillowImage.Image) -> Pixels:
    """Return the samples of a grey or colour image as (height, width, channels)."""
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def new_pixels(shape: tuple[int, int, int]) -> Pixels:
    """Return an array of this shape in the memory of this process."""
    return np.empty(shape, np.uint8)


def upright(pixels: Pixels, orientation: int, new_pixels: NewPixels = new_pixels) -> Pixels:
    """Return stored pixels, turned as EXIF `orientation` (1…8) requires."""
    if orientation == 1:
        return pixels
    height, width, channels = pixels.shape
    shape = (width, height, channels) if orientation >= 5 else (height, width, channels)
    target = new_pixels(shape)
    _as_stored(target, orientation)[:] = _items(pixels)
    return target


def _items(pixels: Pixels) -> Any:
    """Return a view with an item per pixel: they move twice as fast as three bytes on an axis."""
    return np.ascontiguousarray(pixels).view(f"V{pixels.shape[2]}")[..., 0]


def _as_stored(target: Pixels, orientation: int) -> Any:
    """Return a view of upright pixels, an item per pixel, in the order of the stored pixels."""
    turned = target.view(f"V{target.shape[2]}")[..., 0]
    # Orientations 5 to 8 exchange the axes as well, hence the transposition at the end: each of the
    # eight is a choice of two mirrorings and a transposition.
    if orientation in (3, 4, 7, 8):
        turned = turned[::-1]
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    return turned.T if orientation >= 5 else turned
