"""TIFFs of depths that Pillow reads in part or not at all, and colour maps of 8 bits.

The directory of such a file is written anew: its samples appear as bytes, one grey pixel each, so
that Pillow and libtiff undo strips, tiles and compression. The bytes become samples here.
Layout: TIFF 6.0, sections 2, 8, 14, 15 and 18.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image as PillowImage
from PIL import ImagePalette
from PIL.ImageFile import ImageFile

from models.codec.bounds.exif import MAX_ENTRIES, first_directory
from models.codec.bounds.tiff import tag_values
from models.codec.pixels.boxes import Box, Rows, boxes
from models.domain.errors import Undecodable

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_ORIENTATION, _SAMPLES, _PLANAR, _PREDICTOR, _COLOUR_MAP = 274, 277, 284, 317, 320
_TILE_WIDTH, _EXTRA, _SAMPLE_FORMAT = 322, 338, 339

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


@dataclass(frozen=True, slots=True)
class Layout:
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


def bytes_for_pillow(data: bytes) -> tuple[bytes, Layout | None]:
    """Return a TIFF with its samples as grey bytes, and their layout; or the file as it is."""
    entries = first_directory(data)
    if entries is None or len(entries) > MAX_ENTRIES:
        return data, None
    layout = _layout(tag_values(data, entries), "<" if data[:2] == b"II" else ">")
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


def prepare(image: ImageFile, layout: Layout | None) -> None:
    """Note the layout of an opened TIFF, and mend a colour map of 8 bits."""
    if layout is not None:
        image.info[_LAYOUT] = layout
    colours = getattr(image, "tag_v2", {}).get(_COLOUR_MAP, ())
    if image.mode in ("P", "PA") and max(colours, default=256) < 256:
        image.palette = ImagePalette.raw("RGB;L", bytes(colours))


def layout_of(image: ImageFile) -> Layout | None:
    """Return the layout that `prepare` noted."""
    layout = image.info.get(_LAYOUT)
    return layout if isinstance(layout, Layout) else None


def _layout(tags: Mapping[int, tuple[int, ...]], order: str) -> Layout | None:
    """Return the layout of samples that Pillow does not read rightly, None for all other files."""

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
    whole = depth in (8, 16, 32)
    grey_alpha = samples == 2 and (photometric == _WHITE_IS_ZERO or depth == 16)
    inverted = photometric == _WHITE_IS_ZERO
    needed = (
        (whole and grey_alpha and depth < 32)
        or (samples == 1 and (depth == 32 or (depth == 16 and inverted)))
        or depth in (3, 5, 6, 7, *range(9, 16))
    )
    if not needed or (predictor == _DIFFERENCES and not whole):
        return None
    width, tile = value(_WIDTH, 0), value(_TILE_WIDTH, 0)
    if max(width, tile) > MAX_ROW:
        raise Undecodable(
            f"the TIFF has rows of {max(width, tile):,} pixels of {depth} bits a sample, and at "
            f"most {MAX_ROW:,} are allowed at that depth; save it with 8 bits a sample"
        )
    return Layout(
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


class Unpacked(NamedTuple):
    """The rows of a picture whose bytes are the packed samples of a layout."""

    packed: Rows
    layout: Layout

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, in pixels."""
        return self.layout.width, self.layout.height

    @property
    def mode(self) -> str:
        """Return Pillow's name for the pixels."""
        return self.layout.mode

    def part(self, box: Box) -> PillowImage.Image:
        """Return the pixels in a box."""
        width, height = box.right - box.left, box.bottom - box.top
        image = PillowImage.new(self.mode, (width, height))
        for rows in boxes(self.layout.width, height, max(_AT_A_TIME, self.layout.width)):
            top, bottom = box.top + rows.top, box.top + rows.bottom
            packed = self.packed.part(Box(0, top, self.packed.size[0], bottom))
            pixels = _pixels(np.asarray(packed), self.layout)[:, box.left : box.right]
            stripe = np.ascontiguousarray(pixels if pixels.shape[2] > 1 else pixels[..., 0])
            image.paste(PillowImage.fromarray(stripe), (0, rows.top))
        return image

    def release(self, pixels: int) -> None:
        """Do nothing: the bytes are few."""


def _pixels(packed: NDArray[np.uint8], layout: Layout) -> NDArray[np.uint8]:
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


def _samples(tiles: NDArray[np.uint8], layout: Layout) -> NDArray[Any]:
    """Return the samples of rows of tiles; those that fill no whole bytes begin with high bits."""
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
