"""Bound what a file can cost before it is spent: one pass over the container of each format.

Start reading at `check`; each format has its file. No loop here has more turns than a stated limit,
whatever a file says; what only C code walks through (`bytes.find`, `re`, numpy) has no such limit.
May import `models.codec.formats`, `models.domain.errors` and numpy.
"""

from collections.abc import Callable, Mapping

from models.codec.bounds.avif import avif_buffers, check_avif
from models.codec.bounds.bmp import check_bmp
from models.codec.bounds.gif import check_gif
from models.codec.bounds.jpeg import check_jpeg, has_several_scans
from models.codec.bounds.png import check_png, png_buffers
from models.codec.bounds.tiff import check_tiff, tiff_buffers
from models.codec.bounds.webp import check_webp
from models.codec.formats import ImageFormat

_CHECKS: Mapping[ImageFormat, Callable[[bytes, int], float]] = {
    ImageFormat.JPEG: check_jpeg,
    ImageFormat.PNG: check_png,
    ImageFormat.WEBP: check_webp,
    ImageFormat.GIF: check_gif,
    ImageFormat.BMP: check_bmp,
    ImageFormat.TIFF: check_tiff,
    ImageFormat.AVIF: check_avif,
}


def check(data: bytes, format: ImageFormat, max_pixels: int) -> float:
    """Raise Undecodable or TooManyPixels for a file that would cost more than its image is worth.

    Return the CPU seconds that each pixel is estimated to take. Broken files are left to the
    decoder, whose errors are more precise.
    """
    return _CHECKS[format](data, max_pixels)


def buffers(data: bytes, format: ImageFormat, pixels: int, *, alpha: bool) -> int:
    """Return the bytes that a decoder allocates beside its picture of `pixels` pixels.

    They are those that follow from the container, and not from the number of pixels and the mode.
    """
    match format:
        case ImageFormat.PNG:
            return png_buffers(data, pixels, alpha=alpha)
        case ImageFormat.TIFF:
            return tiff_buffers(data, pixels)
        case ImageFormat.AVIF:
            return avif_buffers(data, pixels, alpha=alpha)
    return 0


__all__ = ["buffers", "check", "check_jpeg", "has_several_scans"]
