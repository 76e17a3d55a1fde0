"""TIFF: its cost, samples that Pillow does not read, and camera raw files.

Layout: TIFF 6.0, sections 2, 8, 14, 15 and 18.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImagePalette
from PIL.ImageFile import ImageFile

from models.codec.jpeg import whole
from models.codec.metadata import MAX_ENTRIES, first_directory
from models.codec.rows import Box, PictureRows, boxes
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


# Depths that Pillow reads in part or not at all, and colour maps of 8 bits. The directory of the
# file is written anew: its samples appear as bytes, one grey pixel each, so that Pillow and libtiff
# undo strips, tiles and compression. The bytes become samples here.

_PHOTOMETRIC, _ORIENTATION, _PLANAR, _PREDICTOR, _COLOUR_MAP = 262, 274, 284, 317, 320
_FILL_ORDER, _EXTRA, _SAMPLE_FORMAT, _JPEG_TABLES = 266, 338, 339, 347

_LOSSLESS = frozenset({1, 5, 8, 32773, 32946, 34925, 50000})
"""None, LZW, Deflate, PackBits, the older Deflate, LZMA and Zstandard."""

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2
_COLOURS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3}
_DIFFERENCES = 2
"""The predictor by which samples are stored as differences from those on their left."""

_UNSIGNED, _PREMULTIPLIED, _ALPHA = 1, 1, 2
_KINDS_OF_LONG = {4: 4, 8: 16}
"""The kind of an entry that fills its place of 4 or 8 bytes."""

_WHITE = 65535
"""White in an image of 16 or 32 bits; larger values are clipped."""

_AT_A_TIME = 1 << 17
"""Pixels whose samples are unpacked at a time, in up to 40 bytes each."""

MAX_ROW = 1 << 20
"""Pixels of a row, at most."""

_LAYOUT = "darkroom layout"

INVERTED = "darkroom inverted"
"""The key in the `info` of Pillow's images by which the white of floats is 0."""


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """The place of the samples in the bytes of a row, and their meaning.

    A row has `tiles` tiles of `tile_bytes` bytes; `order` is numpy's sign for the order of bytes.
    """

    width: int
    height: int
    orientation: int
    bits: int
    colours: int
    extra: tuple[int, ...]
    inverted: bool
    differences: bool
    tiles: int
    tile_bytes: int
    order: str

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels, after they were unpacked."""
        alpha = bool(self.extra) and self.extra[0] in (_PREMULTIPLIED, _ALPHA)
        return ("L", "RGB")[self.colours > 1] + "A" * alpha


def bytes_for_pillow(data: bytes) -> tuple[bytes, SampleLayout | None]:
    """Return a TIFF with its samples as grey bytes, and their layout; or the file as it is.

    Raises Undecodable for a row that is too long, and for colours of reversed bits.
    """
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return data, None
    tags = tag_values(data, entries)
    if tags.get(_FILL_ORDER) == (2,) and tags.get(_SAMPLES, (1,)) > (1,):
        raise Undecodable(
            "the TIFF stores the bits of each byte in reverse (FillOrder 2), which is read of grey "
            "alone; save it with FillOrder 1"
        )
    layout = _layout(tags, "<" if data[:2] == b"II" else ">")
    if layout is None:
        return data, None
    width = layout.tiles * layout.tile_bytes
    new = {_WIDTH: width, _BITS: 8, _PHOTOMETRIC: _BLACK_IS_ZERO, _SAMPLES: 1, _ORIENTATION: 1}
    new |= {_TILE_WIDTH: layout.tile_bytes, _PREDICTOR: 1, _SAMPLE_FORMAT: _UNSIGNED}
    kept = entries[entries["tag"] != _EXTRA].copy()
    size = kept.dtype["value"].itemsize
    for entry in kept:
        if int(entry["tag"]) in new:
            entry["kind"], entry["number"] = _KINDS_OF_LONG[size], 1
            entry["value"] = new[int(entry["tag"])]
    # The directory and the pointer to the next one behind it become no longer.
    order = layout.order
    count = np.dtype(f"{order}u{2 if size == 4 else 8}")
    at = int(np.frombuffer(data, f"{order}u{size}", 1, size)[0])
    end = at + count.itemsize + entries.nbytes
    head = np.array([len(kept)], count).tobytes() + kept.tobytes() + data[end : end + size]
    return data[:at] + head + data[at + len(head) :], layout


def prepare(image: ImageFile, layout: SampleLayout | None) -> None:
    """Note the layout of an opened TIFF, and mend a colour map of 8 bits and kinds of samples.

    Raises EOFError for a file without all its strips or tiles, which Pillow leaves black, and
    Undecodable for grey and alpha in two planes, which Pillow mixes up.
    """
    if layout is not None:
        image.info[_LAYOUT] = layout
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
    if image.mode == "F" and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        image.info[INVERTED] = True
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


def layout_of(image: ImageFile) -> SampleLayout | None:
    """Return the layout that `prepare` noted."""
    layout = image.info.get(_LAYOUT)
    return layout if isinstance(layout, SampleLayout) else None


def _layout(tags: Mapping[int, tuple[int, ...]], order: str) -> SampleLayout | None:
    """Return the layout of samples that Pillow does not read rightly, else None."""

    def value(tag: int, default: int) -> int:
        return tags.get(tag, (default,))[0]

    photometric, bits = value(_PHOTOMETRIC, -1), set(tags.get(_BITS, (1,)))
    colours = _COLOURS.get(photometric, 0)
    samples, predictor = value(_SAMPLES, 1), value(_PREDICTOR, 1)
    if (
        not colours <= samples <= colours + 1
        or len(bits) != 1
        or set(tags.get(_SAMPLE_FORMAT, (_UNSIGNED,))) != {_UNSIGNED}
        or value(_COMPRESSION, 1) not in _LOSSLESS
        or (samples > 1 and value(_PLANAR, 1) != 1)
        or predictor not in (1, _DIFFERENCES)
        or not (colours and value(_WIDTH, 0) and value(_HEIGHT, 0))
    ):
        return None
    depth = bits.pop()
    inverted = photometric == _WHITE_IS_ZERO
    read_by_pillow = (
        (samples == 1 and (depth in (1, 2, 4, 8) or (depth == 16 and not inverted)))
        or (samples == 2 and depth == 8 and not inverted)
        or (colours > 1 and depth in (8, 16))
    )
    if read_by_pillow or not (depth <= 16 or depth == 32):
        return None
    if predictor == _DIFFERENCES and depth not in (8, 16, 32):
        return None
    width, tile = value(_WIDTH, 0), value(_TILE_WIDTH, 0)
    if max(width, tile) > MAX_ROW:
        raise Undecodable(
            f"the TIFF has rows of {max(width, tile):,} pixels of {depth} bits a sample, and at "
            f"most {MAX_ROW:,} are allowed at that depth; save it with 8 bits a sample"
        )
    return SampleLayout(
        width=width,
        height=value(_HEIGHT, 0),
        orientation=value(_ORIENTATION, 1),
        bits=depth,
        colours=colours,
        extra=tags.get(_EXTRA, (0,)) if samples > colours else (),
        inverted=inverted,
        differences=predictor == _DIFFERENCES,
        tiles=-(-width // tile) if tile else 1,
        tile_bytes=-(-(tile or width) * samples * depth // 8),
        order=order,
    )


def unpacked(packed: PictureRows, layout: SampleLayout) -> PictureRows:
    """Return the rows of a picture whose bytes are the packed samples of a layout."""

    def crop(box: Box) -> PillowImage.Image:
        width, height = box.right - box.left, box.bottom - box.top
        image = PillowImage.new(layout.mode, (width, height))
        for rows in boxes(layout.width, height, max(_AT_A_TIME, layout.width)):
            top, bottom = box.top + rows.top, box.top + rows.bottom
            stored = packed.crop(Box(0, top, packed.size[0], bottom))
            pixels = _pixels(np.asarray(stored), layout)[:, box.left : box.right]
            stripe = np.ascontiguousarray(pixels if pixels.shape[2] > 1 else pixels[..., 0])
            image.paste(PillowImage.fromarray(stripe), (0, rows.top))
        return image

    return PictureRows((layout.width, layout.height), layout.mode, crop)


def _pixels(packed: NDArray[np.uint8], layout: SampleLayout) -> NDArray[np.uint8]:
    """Return rows of pixels of 8 bits a sample, with alpha where the layout's mode has it."""
    rows, per_pixel = len(packed), layout.colours + len(layout.extra)
    tiles = packed.reshape(rows, layout.tiles, layout.tile_bytes)
    across = layout.tile_bytes * 8 // layout.bits // per_pixel
    samples = _samples(tiles, layout)[..., : across * per_pixel]
    samples = samples.reshape(rows, layout.tiles, across, per_pixel)
    if layout.differences:
        samples = np.cumsum(samples, axis=2, dtype=samples.dtype)
    samples = samples.reshape(rows, layout.tiles * across, per_pixel)[:, : layout.width]
    most = (1 << layout.bits) - 1 if layout.bits < 16 else _WHITE
    values = np.minimum(samples, most).astype(np.uint32)
    if layout.inverted:
        values[..., : layout.colours] = most - values[..., : layout.colours]
    if layout.extra[:1] == (_PREMULTIPLIED,):
        alpha = np.maximum(values[..., -1:], 1)
        values[..., :-1] = np.minimum(values[..., :-1] * most // alpha, most)
    values = values[..., : layout.colours + layout.mode.endswith("A")]
    levels: NDArray[np.uint8] = ((values * 255 + most // 2) // most).astype(np.uint8)
    return levels


def _samples(tiles: NDArray[np.uint8], layout: SampleLayout) -> NDArray[Any]:
    """Return the samples of rows of tiles; samples of parts of bytes begin with high bits."""
    if layout.bits in (8, 16, 32):
        return (
            np.ascontiguousarray(tiles)
            .view(f"{layout.order}u{layout.bits // 8}")
            .astype(f"u{layout.bits // 8}")
        )
    first = np.arange(layout.tile_bytes * 8 // layout.bits) * layout.bits
    padded = np.pad(tiles, ((0, 0), (0, 0), (0, 2))).astype(np.uint32)
    words = sum(padded[..., first // 8 + n] << np.uint32(16 - 8 * n) for n in range(3))
    shift = (24 - layout.bits - first % 8).astype(np.uint32)
    return (words >> shift) & np.uint32((1 << layout.bits) - 1)


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
