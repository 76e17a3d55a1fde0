"""The only access to Pillow's parsers and globals: their errors and warnings about a file end here.

Pillow's own pixel ceiling (`Image.MAX_IMAGE_PIXELS`, errors above twice that: 178,956,970 pixels)
stays in force for the whole process and is answered as TooManyPixels, so the effective limit is the
smaller of the two. It is not lifted here: it is a global, and further users of Pillow rely on it.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Lock

# Imported so that they are registered: Pillow would otherwise import all its plugins on first use.
from PIL import (  # noqa: F401
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL import Image as PillowImage

from models.codec.colour import cicp_profile, is_grey
from models.codec.containers import clean_aperture, embedded_profile, first_frame, nclx, properties
from models.codec.formats import ImageFormat
from models.codec.heif import HeifPicture
from models.codec.png import cicp, without_damaged_chunks
from models.codec.rows import FRAME, SHOWN
from models.codec.tiff import check_samples, prepare
from models.domain.errors import ServiceError, TooManyPixels, Undecodable

warnings.filterwarnings("ignore", module=r"PIL\.")  # about files, which clients send

_BUFFERS = Lock()


@contextmanager
def reading(format: ImageFormat) -> Iterator[None]:
    """Turn Pillow's errors inside the block into Undecodable or TooManyPixels."""
    try:
        yield
    except ServiceError:
        raise
    except PillowImage.DecompressionBombError as error:
        raise TooManyPixels(
            f"the {format.name} has more pixels than can be decoded here; send it smaller"
        ) from error
    except Exception as error:  # our callers: a parser may stumble over a bad file in any way
        raise Undecodable(
            f"the {format.name} is corrupt, truncated or of an unknown kind; "
            "check that it opens elsewhere and send the whole file"
        ) from error


def open_image(data: bytes, format: ImageFormat) -> ImageFile.ImageFile:
    """Return Pillow's view of the header of `data`, which must be of that format; decode no
    pixels.

    The `info` of the image notes facts that Pillow does not read: the profile of colours that a
    file names without embedding a profile, the part of an AVIF that is shown, and the white of a
    TIFF.
    """
    if format is ImageFormat.TIFF:
        check_samples(data)
    elif format is ImageFormat.PNG:
        data = without_damaged_chunks(data)
    image: ImageFile.ImageFile
    if format is ImageFormat.HEIF:
        image = HeifPicture(BytesIO(data))
    else:
        image = PillowImage.open(BytesIO(data), formats=[format.name])
    match format:
        case ImageFormat.HEIF:
            if points := image.info.get("nclx"):
                image.info["icc_profile"] = cicp_profile(*points, grey=False)
        case ImageFormat.TIFF:
            prepare(image)
        case ImageFormat.PNG:
            grey = is_grey(image.mode)
            if (points := cicp(data)) and (named := cicp_profile(*points, grey=grey)) is not None:
                image.info["icc_profile"] = named  # before iCCP
        case ImageFormat.WEBP:
            if image.mode == "RGB" and (frame := first_frame(data)):
                image.info[FRAME] = frame
        case ImageFormat.AVIF:
            found = properties(data)
            if shown := clean_aperture(found, *image.size):
                image.info[SHOWN] = shown
            if "icc_profile" not in image.info and (points := nclx(found)):
                image.info["icc_profile"] = cicp_profile(*points, grey=False)
        case ImageFormat.BMP:
            image.info["icc_profile"] = embedded_profile(data)
    return image


@contextmanager
def writing_at_once(n_bytes: int) -> Iterator[None]:
    """Give Pillow's buffers room for a file of this number of bytes inside the block.

    Their size is a global of Pillow's: threads take turns, and the chunks of a PNG that another
    thread writes meanwhile are larger, of the same pixels.
    """
    with _BUFFERS:
        usual, ImageFile.MAXBLOCK = ImageFile.MAXBLOCK, n_bytes
        try:
            yield
        finally:
            ImageFile.MAXBLOCK = usual
