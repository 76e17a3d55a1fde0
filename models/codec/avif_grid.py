"""Encode a large image as an AVIF grid: cells that are encoded in turn.

libaom takes 15 to 37 bytes for each pixel that it encodes at a time, so a whole image of 24
megapixels took half a gigabyte. A grid is an ordinary AVIF in which a derived image item names the
cells (ISO/IEC 23008-12, 6.6.2.3.2; MIAF, ISO/IEC 23000-22, 7.3.11.4.2); libavif and browsers read
it. ISO/IEC 14496-12 defines the boxes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np

from models.codec.containers import boxes
from models.domain.image import Pixels

_HEADER = 8


def number(value: int, n_bytes: int) -> bytes:
    """Return a number without sign in `n_bytes` bytes; raises OverflowError."""
    return value.to_bytes(n_bytes, "big")


def box(kind: bytes, content: bytes) -> bytes:
    """Return a box: its length, its kind of four bytes, and its content."""
    return number(_HEADER + len(content), 4) + kind + content


def full_box(kind: bytes, content: bytes, version: int = 0, flags: int = 0) -> bytes:
    """Return a box whose content begins with a version and flags."""
    return box(kind, number(version, 1) + number(flags, 3) + content)


WHOLE = 4 << 20
"""Pixels up to which an image is encoded whole, in one item."""

SIDE = 1448
"""Longest side of a cell, in pixels: a cell has at most two megapixels."""

CELL = SIDE * SIDE

FORM = f"1/{WHOLE}/{SIDE}"
"""Names how grids are written, for entity tags; the first number grows when the bytes of a file
change for other reasons than the sizes."""

_ALPHA = full_box(b"auxC", b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")
_ESSENTIAL = 0x80
"""Marks a property that a reader has to know; av1C, the configuration of the decoder, is one."""

EncodeCell = Callable[[Pixels], bytes]
"""Encodes an array as an AVIF of one item, without metadata."""


class GridLayout:
    """Rows and columns of a grid, and the height and width of its cells, all in pixels.

    The cells are equal, with the even sides of 4:2:0; the last reach beyond the image.
    """

    def __init__(self, height: int, width: int) -> None:
        self.rows, self.columns = math.ceil(height / SIDE), math.ceil(width / SIDE)
        self.height, self.width = _even(height / self.rows), _even(width / self.columns)

    def cells(self, pixels: Pixels) -> Iterator[Pixels]:
        """Yield the cells row by row; the edge is repeated beyond the image."""
        for row in range(self.rows):
            for column in range(self.columns):
                top, left = row * self.height, column * self.width
                cell = pixels[top : top + self.height, left : left + self.width]
                beyond = self.height - cell.shape[0], self.width - cell.shape[1]
                if any(beyond):
                    cell = np.pad(cell, ((0, beyond[0]), (0, beyond[1]), (0, 0)), mode="edge")
                yield np.ascontiguousarray(cell)


def needs_full_chroma(height: int, width: int) -> bool:
    """Return whether a grid of this size must be 4:4:4: in 4:2:0 its sides have to be even."""
    return bool(height % 2 or width % 2)


def encode_grid(pixels: Pixels, encode_cell: EncodeCell, exif: bytes = b"") -> bytes:
    """Return an AVIF grid of uint8 (H, W, C), with alpha as a grid of its own unless it is opaque.

    `encode_cell` gets arrays of equal shapes with 1 or 3 channels. `exif` is an EXIF block.
    """
    height, width, channels = pixels.shape
    layout = GridLayout(height, width)
    file = _File(height, width, layout)
    primary = file.add_grid(layout.cells(pixels[:, :, :3]), encode_cell)
    if channels == 4 and not (pixels[:, :, 3] == 255).all():
        alpha = file.add_grid(layout.cells(pixels[:, :, 3:]), encode_cell, alpha=True)
        file.refer(b"auxl", alpha, [primary])
    if exif:
        start = 6 if exif.startswith(b"Exif\0\0") else 0
        item = file.add_item(b"Exif", number(start, 4) + exif, [])
        file.refer(b"cdsc", item, [primary])
    return file.written()


@dataclass(slots=True)
class _File:
    """The items of a file and the references between them; item 1 is the image."""

    height: int
    width: int
    layout: GridLayout
    start: bytes = b""
    handler: bytes = b""
    properties: list[bytes] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    infos: list[bytes] = field(default_factory=list)
    associations: list[bytes] = field(default_factory=list)
    references: list[bytes] = field(default_factory=list)

    def add_grid(
        self, cells: Iterator[Pixels], encode_cell: EncodeCell, *, alpha: bool = False
    ) -> int:
        """Encode the cells and add them with their grid, whose number is returned."""
        layout = self.layout
        rows, columns = number(layout.rows - 1, 1), number(layout.columns - 1, 1)
        grid = bytes(2) + rows + columns + number(self.width, 2) + number(self.height, 2)
        item = self.add_item(b"grid", grid, [])
        own: list[int] = []
        for cell in cells:
            found, data = _parts(encode_cell(cell))
            if not own:
                self.start, self.handler = self.start or found["ftyp"], found["hdlr"]
                size = full_box(b"ispe", number(self.width, 4) + number(self.height, 4))
                last = _ALPHA if alpha else found["colr"]
                shared = [self._property(each) for each in (found["pixi"], last)]
                self._associate(item, [self._property(size), *shared])
                decoding = self._property(found["av1C"]) | _ESSENTIAL
                properties = [self._property(found["ispe"]), shared[0], decoding, shared[1]]
            own.append(self.add_item(b"av01", data, properties, hidden=True))
        self.refer(b"dimg", item, own)
        return item

    def add_item(
        self, kind: bytes, content: bytes, properties: list[int], *, hidden: bool = False
    ) -> int:
        """Add an item with the numbers of its properties, and return its number."""
        self.contents.append(content)
        item = len(self.contents)
        info = number(item, 2) + bytes(2) + kind + b"\0"
        self.infos.append(full_box(b"infe", info, version=2, flags=int(hidden)))
        if properties:
            self._associate(item, properties)
        return item

    def refer(self, kind: bytes, item: int, others: list[int]) -> None:
        """Add a reference of an item to further items."""
        named = b"".join(number(each, 2) for each in others)
        self.references.append(box(kind, number(item, 2) + number(len(others), 2) + named))

    def written(self) -> bytes:
        """Return the file, once. Its length is known before the places of its items are."""
        head = len(self.start) + len(self._meta(0)) + 8  # 8 are the header of mdat
        size = number(8 + sum(map(len, self.contents)), 4)
        file = BytesIO()
        file.writelines((self.start, self._meta(head), size, b"mdat"))
        # Each content is freed as it is written: noise at quality 100 takes 5 bytes for each pixel.
        self.contents.reverse()
        while self.contents:
            file.write(self.contents.pop())
        return file.getvalue()

    def _property(self, content: bytes) -> int:
        if content not in self.properties:
            self.properties.append(content)
        return self.properties.index(content) + 1

    def _associate(self, item: int, properties: list[int]) -> None:
        entry = number(item, 2) + number(len(properties), 1) + bytes(properties)
        self.associations.append(entry)

    def _meta(self, first: int) -> bytes:
        places, at = [], first
        for item, content in enumerate(self.contents, 1):
            extent = number(1, 2) + number(at, 4) + number(len(content), 4)
            places.append(number(item, 2) + bytes(2) + extent)
            at += len(content)
        n = number(len(self.contents), 2)
        counted = number(len(self.associations), 4)
        linked = full_box(b"ipma", counted + b"".join(sorted(self.associations)))
        parts = (
            self.handler,
            full_box(b"pitm", number(1, 2)),
            full_box(b"iloc", b"\x44\0" + n + b"".join(places)),  # places and lengths of 4 bytes
            full_box(b"iinf", n + b"".join(self.infos)),
            full_box(b"iref", b"".join(self.references)),
            box(b"iprp", box(b"ipco", b"".join(self.properties)) + linked),
        )
        return full_box(b"meta", b"".join(parts))


def _parts(cell: bytes) -> "tuple[dict[str, Any], bytes]":
    """Return the boxes of a cell's file that a grid repeats, by their names, and its only item."""
    outer = dict(boxes(cell))
    meta = dict(boxes(outer[b"meta"][4:]))
    found = outer | meta | dict(boxes(dict(boxes(meta[b"iprp"]))[b"ipco"]))
    kinds = (b"ftyp", b"hdlr", b"ispe", b"pixi", b"av1C", b"colr")
    return {kind.decode(): box(kind, found[kind]) for kind in kinds}, outer[b"mdat"]


def _even(side: float) -> int:
    return 2 * math.ceil(side / 2)
