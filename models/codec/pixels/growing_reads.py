"""Read pixels that are not compressed in pieces that grow, however the strips of a file lie.

Pillow joins each piece that it reads to what it has of the present row. It asks for as many bytes
as lie between the beginnings of two strips, or for 64 KiB: a row of 30 MB took 3.6 s of copying,
and strips that begin one byte after the other took 10 s in a TIFF of 60 kB.
"""

from typing import Any

from PIL.ImageFile import ImageFile

MOST = 1 << 20
"""Bytes of a piece, at most, where Pillow asks for fewer."""

_FORMATS = ("BMP", "TIFF")
"""Formats whose pixels Pillow reads itself; a decoder of the others takes what it gets."""


def read_growing(image: ImageFile) -> None:
    """Let Pillow read the pixels of an image that has not been loaded in such pieces."""
    if image.format in _FORMATS:
        pieces = _Pieces(image.fp)
        hooks: Any = image
        hooks.load_read, hooks.load_seek = pieces.read, pieces.seek


class _Pieces:
    """Reader of one strip after the other: each piece has as many bytes as all before it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._read = 0

    def seek(self, offset: int) -> None:
        """Go to the beginning of a strip."""
        self._file.seek(offset)
        self._read = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes: `size` at least, or more by what the strip has taken already."""
        piece: bytes = self._file.read(max(size, min(self._read, MOST)))
        self._read += len(piece)
        return piece
