"""Describe an image file by its header: format, size, EXIF, profile, and its dominant colour.

Only the colour needs pixels, and few of them: a JPEG is decoded at an eighth of its size where that
is possible. Files may be hostile, so this runs where decoding runs.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import ExifTags, ImageCms
from PIL import Image as PillowImage
from PIL.ImageFile import ImageFile

from models.codec.colour import MAX_PROFILE_BYTES, is_grey, to_srgb
from models.codec.formats import ImageFormat
from models.codec.jpeg import whole
from models.codec.metadata import affordable
from models.codec.pillow import open_image, reading
from models.codec.probe import Header
from models.codec.rows import PictureRows, boxes
from models.codec.stripes import STRIPE, loaded, simple_rows

SIDE = 64
"""Pixels of the longer side of the small image whose colours are counted."""

LEVELS = 8
"""Levels of each primary colour that are told apart when colours are counted."""

OPAQUE = 128
"""Least alpha of a pixel that counts."""

MAX_TEXT = 200
"""Characters of a text that are shown."""

_FIRST = {
    "Make", "Model", "Software", "DateTime", "Artist", "Copyright", "ImageDescription",
    "XResolution", "YResolution", "ResolutionUnit",
}  # fmt: skip
_PHOTO = {
    "DateTimeOriginal", "OffsetTimeOriginal", "ExposureTime", "FNumber", "ISOSpeedRatings",
    "ExposureProgram", "ExposureBiasValue", "MeteringMode", "Flash", "FocalLength",
    "FocalLengthIn35mmFilm", "WhiteBalance", "LensMake", "LensModel", "ColorSpace",
}  # fmt: skip
"""The entries of EXIF that are shown. Not among them: the place, serial numbers, owners' names,
comments, thumbnails and makers' notes, because they tell about people, not about pictures."""

ExifValue = str | int | float


@dataclass(frozen=True, slots=True)
class ColourShare:
    """A dominant colour as `#rrggbb` in sRGB, and its share of the opaque pixels."""

    colour: str
    share: float


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a file by its header; JSON leaves out members that are None.

    `width` and `height` describe the upright image, in pixels; `orientation` is EXIF's, 1 to 8.
    `frames` is None where there are several and the header has no count (GIF, TIFF). `mode` is
    Pillow's name of the stored pixels. `exif` has camera, exposure, dates and author, but no place,
    serial numbers or comments. `profile` is the name of the colour profile. `colour` is the
    dominant colour, `#rrggbb` in sRGB, None if it was not asked for, or if no pixel is opaque. The
    last three are None if the appearance was not asked for: `phash` has 16 hexadecimal digits, of
    which few bits differ where images look alike; `blurhash`, of 4 × 3 components on white, is a
    placeholder for pages; and up to five `colours` begin with the most frequent colour.
    """

    format: str
    width: int
    height: int
    orientation: int
    mode: str
    exif: dict[str, ExifValue]
    frames: int | None = None
    profile: str | None = None
    colour: str | None = None
    phash: str | None = None
    blurhash: str | None = None
    colours: list[ColourShare] | None = None


def describe(data: bytes, header: Header, *, colour: bool) -> Description:
    """Return the description of a file whose header was read; raises Undecodable.

    Without `colour` no pixel is decoded.
    """
    info = header.info
    several = info.frames > 1 and info.format in (ImageFormat.GIF, ImageFormat.TIFF)
    with reading(info.format):
        image = header.image or open_image(data, info.format)
        exif = _exif(image)
        if colour and info.format is ImageFormat.JPEG:
            image = open_image(whole(data, image.mode), info.format)
        found = _dominant(image, header.icc_profile) if colour else None
    return Description(
        info.format.value,
        info.width,
        info.height,
        info.orientation,
        info.mode,
        exif,
        None if several else info.frames,
        _profile_name(header.icc_profile),
        found,
    )


def _exif(image: ImageFile) -> dict[str, ExifValue]:
    """Return the entries that are shown, by their names; none of a block that is broken."""
    block = image.info.get("exif")
    if isinstance(block, bytes) and not affordable(block):
        return {}
    try:
        exif = PillowImage.Image.getexif(image)  # that of PNG would decode pixels
        photo = exif.get_ifd(ExifTags.IFD.Exif)
        return dict([*_shown(dict(exif), _FIRST), *_shown(photo, _PHOTO)])
    except Exception:  # the image: its header is good whatever its metadata holds
        return {}


def _shown(entries: dict[int, object], names: set[str]) -> Iterator[tuple[str, ExifValue]]:
    for tag, value in entries.items():
        name = ExifTags.TAGS.get(tag, "")
        if name in names and (clean := _clean(value)) is not None:
            yield name, clean


def _clean(value: object) -> ExifValue | None:
    """Return a value that JSON can carry, or None."""
    if isinstance(value, bool | tuple):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        return _text(value)
    try:
        number = float(value)  # type: ignore[arg-type]  # a rational of Pillow's
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    return round(number, 6) if math.isfinite(number) else None


def _text(value: str) -> str | None:
    """Return printable text of at most MAX_TEXT characters, or None if nothing is left."""
    with suppress(UnicodeError):  # EXIF says ASCII, the world writes UTF-8
        value = value.encode("latin-1").decode()
    printable = "".join(each if each.isprintable() else " " for each in value)
    return " ".join(printable.split())[:MAX_TEXT] or None


def _profile_name(profile: bytes | None) -> str | None:
    if not profile or len(profile) > MAX_PROFILE_BYTES:
        return None
    try:
        name = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(BytesIO(profile)))
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
    return _text(name)


def _dominant(image: ImageFile, profile: bytes | None) -> str | None:
    """Return the mean of the most frequent colours that are alike.

    The small image has means of pixels, so that grain does not hide the colour of a surface.
    """
    image.draft(image.mode, (SIDE, SIDE))
    rows = loaded(image)
    small = to_srgb(reduced(simple_rows(rows)), profile, grey=is_grey(rows.mode))
    small.thumbnail((SIDE, SIDE))
    pixels = np.asarray(small.convert("RGBA")).reshape(-1, 4)
    colours = pixels[pixels[:, 3] >= OPAQUE, :3].astype(np.int64)
    if not len(colours):
        return None
    bins = (colours * LEVELS // 256) @ np.array([LEVELS * LEVELS, LEVELS, 1])
    alike = colours[bins == np.bincount(bins).argmax()]
    red, green, blue = (round(float(each)) for each in alike.mean(axis=0))
    return f"#{red:02x}{green:02x}{blue:02x}"


def reduced(rows: PictureRows) -> PillowImage.Image:
    """Return means of pixels, at least SIDE of them on the longer side of a larger picture.

    They are computed box by box: a whole picture is never converted, which would take up to 8
    bytes per pixel more. `rows` are L, RGB, RGBA or CMYK.
    """
    width, height = rows.size
    factor = max(1, max(width, height) // SIDE)
    small: PillowImage.Image | None = None
    for box in boxes(width, height, STRIPE, factor):
        part = rows.crop(box).reduce(factor)
        if small is None:
            small = PillowImage.new(part.mode, (-(-width // factor), -(-height // factor)))
        small.paste(part, (box.left // factor, box.top // factor))
    assert small is not None
    return small
