"""TIFF: its cost, samples that Pillow does not read, and camera raw files.

Layout: TIFF 6.0, sections 2, 8, 14, 15 and 18.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import ImagePalette, TiffImagePlugin
from PIL.ImageFile import ImageFile

from models.codec.colour import INVERTED, WHITE
from models.codec.jpeg import whole
from models.codec.metadata import MAX_ENTRIES, first_directory
from models.domain.errors import Undecodable

MAX_SAMPLES = 32
"""Samples of a pixel, at most, that are looked at; images have up to 5."""

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _STRIPS, _SAMPLES = 256, 257, 258, 259, 273, 277
_ROWS, _STRIP_BYTES, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES = 278, 279, 322, 323, 324, 325
_OFFSETS = (_STRIPS, _TILES)
_JPEGS = (6, 7)
_INTEGERS = {1: 1, 3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 13: 4, 16: 8, 17: 8}
"""Bytes of an integer of each kind."""

_MOST_BITS = 64
_RGBA = 4  # bytes of a pixel of a JPEG's strip, which libtiff converts
_SCAN = b"\xff\xda"


def tiff_buffers(data: bytes, pixels: int) -> int:
    """Return the bytes of a strip or tile, which libtiff unpacks as a whole beside the picture.

    `pixels` is the size of the image, for files without a readable directory. A JPEG of several
    scans inside keeps its coefficients too, 16 bits for each sample.
    """
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return pixels * _MOST_BITS // 8
    values = tag_values(data, entries)
    found = {tag: numbers[0] for tag, numbers in values.items() if len(numbers) == 1}
    told = values.get(_BITS, (_MOST_BITS if (entries["tag"] == _BITS).any() else 1,))
    width, height = found.get(_WIDTH, 0), found.get(_HEIGHT, 0)
    tile = found.get(_TILE_WIDTH, 0) * found.get(_TILE_HEIGHT, 0)
    samples = min(found.get(_SAMPLES, 1), MAX_SAMPLES)
    per_pixel = -(-samples * min(max(told), _MOST_BITS) // 8)
    if found.get(_COMPRESSION) in _JPEGS:
        chunks = entries["number"][np.isin(entries["tag"], _OFFSETS)].max(initial=1)
        coefficients = 2 * samples if data.count(_SCAN) > chunks else 0
        per_pixel = max(per_pixel, _RGBA) + coefficients
    return per_pixel * max(tile, width * min(found.get(_ROWS) or height, height))


def tag_values(data: bytes, entries: NDArray[Any]) -> dict[int, tuple[int, ...]]:
    """Return the integers of each entry that has some, by its tag; at most MAX_SAMPLES of each.

    Of equal tags the first counts, as in libtiff.
    """
    order = entries.dtype["value"].str[0]
    whole = entries.dtype["value"].itemsize
    found: dict[int, tuple[int, ...]] = {}
    for tag, kind, number, value in entries[::-1]:
        size = _INTEGERS.get(int(kind), 0)
        length = size * min(int(number), MAX_SAMPLES)
        content = int(value).to_bytes(whole, "big" if order == ">" else "little")
        if length > len(content):
            content = data[int(value) : int(value) + length]
        if size and 0 < length <= len(content):
            numbers = np.frombuffer(content[:length], f"{order}u{size}")
            found[int(tag)] = tuple(map(int, numbers))
    return found


# Samples that Pillow does not read, or reads without their white.

_PHOTOMETRIC, _FILL_ORDER, _PLANAR, _COLOUR_MAP = 262, 266, 284, 320
_SAMPLE_FORMAT, _JPEG_TABLES = 339, 347
_WHITE_IS_ZERO, _RGB = 0, 2
_UNSIGNED, _ALPHA = (1,), (2,)

_READ = {1: (1, 2, 4, 8, 12, 16, 32), 2: (8,), 3: (8, 16)}
"""The bits of a sample of grey, of grey with alpha, and of colours."""


def _more_modes() -> Iterator[tuple[Any, tuple[str, str]]]:
    """Yield the keys of Pillow's table of TIFFs for grey that it lacks, and mode and raw mode."""
    for order, kind in ((TiffImagePlugin.II, ""), (TiffImagePlugin.MM, "B")):
        sixteen, word = "I;16" + kind, "I;32" + (kind or "N")
        modes = {12: ("I;16", "I;12"), 16: (sixteen, sixteen), 32: ("I", word)}
        for photometric, (bits, names) in itertools.product((_WHITE_IS_ZERO, 1), modes.items()):
            yield (order, photometric, _UNSIGNED, 1, (bits,), ()), names
        yield (order, _WHITE_IS_ZERO, _UNSIGNED, 1, (8, 8), _ALPHA), ("LA", "LA")
        yield (order, _WHITE_IS_ZERO, _UNSIGNED, 1, (8, 8), (0,)), ("L", "LX")


TiffImagePlugin.OPEN_INFO.update(_more_modes())


def check_samples(data: bytes) -> None:
    """Raise Undecodable for bits of samples that are not read, also in reverse."""
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return
    tags = tag_values(data, entries)
    samples = max(1, tags.get(_SAMPLES, (1,))[0])
    bits = max(tags.get(_BITS, (1,)))
    if tags.get(_FILL_ORDER) == (2,) and (samples > 1 or bits in (12, 32)):
        raise Undecodable(
            "the TIFF stores the bits of each byte in reverse (FillOrder 2), which is read of grey "
            "of 1 to 8 or 16 bits alone; save it with FillOrder 1"
        )
    if bits not in _READ[min(samples, 3)] and tags.get(_PHOTOMETRIC, (_RGB + 1,))[0] <= _RGB:
        raise Undecodable(
            f"the TIFF has {bits} bits a sample; grey is read of 1, 2, 4, 8, 12, 16 or 32 bits, "
            "grey with alpha of 8, and colours of 8 or 16; save it with 8 bits a sample"
        )


def prepare(image: ImageFile) -> None:
    """Note the white of an opened TIFF, and mend a colour map of 8 bits and kinds of samples.

    Raises EOFError for a file without all its strips or tiles, which Pillow leaves black, and
    Undecodable for grey and alpha in two planes, which Pillow mixes up.
    """
    tags: Any = getattr(image, "tag_v2", {})
    if tags.get(_PLANAR) == 2 and tags.get(_SAMPLES, 1) == 1:
        tags[_PLANAR] = 1
        cast(Any, image)._setup()  # Pillow would keep the first letter of the kind of samples
    planes = len(image.getbands()) if tags.get(_PLANAR) == 2 else 1
    if planes == 2:
        raise Undecodable("the TIFF has grey and alpha in two planes; save them in one plane")
    by_libtiff = image.tile[:1] and image.tile[0].codec_name == "libtiff"  # all planes in a tile
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for each in image.tile if (box := each.extents)]
    if sum(areas) < image.width * image.height * (1 if by_libtiff else planes):
        raise EOFError("the TIFF has fewer strips or tiles than its size needs")
    if by_libtiff:
        kind, *others = cast(Any, image.tile[0].args)  # libtiff has put the bytes in our order
        kind = re.sub(r"(?<=;\d\d)B", "N", kind)
        image.tile[0] = image.tile[0]._replace(args=(kind, *others))
    elif planes > 1 and 16 in tags.get(_BITS, ()):
        suffix = ";16L" if tags.prefix == b"II" else ";16B"  # without it, Pillow reads bytes
        for n, each in enumerate(image.tile):
            band, *others = cast(Any, each.args)
            image.tile[n] = each._replace(args=(band + suffix, *others))
    bits = tags.get(_BITS, (1,))
    by_pillow = image.mode in ("1", "L") and len(bits) == 1
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO and not by_pillow:
        image.info[INVERTED] = True
    if image.mode.startswith("I") and tags.get(_SAMPLE_FORMAT, _UNSIGNED) == _UNSIGNED:
        image.info[WHITE] = (1 << min(bits[0], 16)) - 1
    colours = tags.get(_COLOUR_MAP, ())
    if image.mode in ("P", "PA") and max(colours, default=256) < 256:
        image.palette = ImagePalette.raw("RGB;L", bytes(colours))


def check_jpegs(data: bytes, image: ImageFile) -> None:
    """Raise Undecodable if a strip or tile that is a JPEG lacks pixels, which libtiff fills up."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(_COMPRESSION) == _JPEGS[1]:
        tables = tags.get(_JPEG_TABLES, b"\xff\xd8\xff\xd9")[:-2]
        places = tags.get(_STRIPS) or tags.get(_TILES, ())
        sizes = tags.get(_STRIP_BYTES) or tags.get(_TILE_BYTES, ())
        for start, size in zip(places, sizes, strict=False):
            whole(tables + data[start + 2 : start + size], image.mode)


# Camera raw files, which look like TIFFs of their thumbnails, or like no image at all: Adobe's
# DNG 1.7, chapter 4; TIFF/EP (ISO 12234-2) for the files of most cameras.

_BY_MAGIC = re.compile(
    rb"(?P<CR2>(?:II\*\0|MM\0\*).{4}CR)"
    rb"|(?P<CR3>.{4}ftypcrx )"
    rb"|(?P<RAF>FUJIFILMCCD-RAW)"
    rb"|(?P<ORF>IIR[OS]|MMOR)"
    rb"|(?P<RW2>IIU\0)"
    rb"|(?P<X3F>FOVb)"
    rb"|(?P<MRW>\0MRM)",
    re.DOTALL,
)
_BY_MAKE = {
    b"NIKON": "NEF",
    b"SONY": "ARW",
    b"PENTAX": "PEF",
    b"RICOH": "PEF",
    b"SAMSUNG": "SRW",
    b"OLYMPUS": "ORF",
    b"PANASONIC": "RW2",
    b"CANON": "CR2",
    b"HASSELBLAD": "3FR",
    b"EPSON": "ERF",
    b"KODAK": "DCR",
    b"EASTMAN KODAK": "DCR",
    b"LEAF": "MOS",
    b"PHASE ONE": "IIQ",
    b"FUJIFILM": "RAF",
}
"""Kinds of files, by the beginning of the camera's maker."""

_NEW_SUBFILE, _MAKE, _SUB_IFDS, _DNG_VERSION = 254, 271, 330, 50706
_REDUCED = 1
_SENSOR = frozenset({32803, 34892})
"""Photometric kinds of unprocessed samples: of a colour filter array, and linear."""

_MAKE_BYTES = 32


def camera_raw(data: bytes) -> str | None:
    """Return the kind of a camera raw file, as its extension names it, else None."""
    if match := _BY_MAGIC.match(data):
        return match.lastgroup
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return None
    tags = {int(each["tag"]): each for each in entries[::-1]}
    if _DNG_VERSION in tags:
        return "DNG"
    found = tag_values(data, entries)
    sensor = found.get(_PHOTOMETRIC, (0,))[0] in _SENSOR
    reduced = found.get(_NEW_SUBFILE, (0,))[0] & _REDUCED and _SUB_IFDS in tags
    if not (sensor or reduced) or (make := tags.get(_MAKE)) is None:
        return None
    at, size = int(make["value"]), min(int(make["number"]), _MAKE_BYTES)
    name = data[at : at + size].upper()
    return next((kind for start, kind in _BY_MAKE.items() if name.startswith(start)), "TIFF/EP")
