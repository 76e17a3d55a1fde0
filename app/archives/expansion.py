"""The content of a compressed file at any position, with bounded memory and a bounded total."""

import lzma
import tempfile
import zlib
from threading import Lock
from typing import BinaryIO, cast

from app.archives.decompression import PIECE, Decompression
from app.archives.limits import ArchiveLimits
from app.archives.source import FileContent
from models.domain.errors import BadArchive

MOST_UNPACKED = 4 << 30
"""Largest number of bytes of a temporary file that holds a compressed TAR unpacked."""


class Expansion:
    """The unpacked content of a file of the kind `gz`, `bz2` or `xz`.

    Reading forward unpacks as it goes. The first read at an earlier position unpacks everything
    into an unnamed temporary file, because starting again for each read would take quadratic time.
    """

    def __init__(self, packed: FileContent, kind: str, limits: ArchiveLimits) -> None:
        self._packed, self._kind, self._limits = packed, kind, limits
        self._lock = Lock()
        self._stream = Decompression(packed, kind, limits)
        self._position = 0
        self._unpacked: FileContent | None = None
        self._damage: BadArchive | None = None
        self._file: BinaryIO | None = None

    def read_at(self, position: int, size: int) -> bytes:
        """Return `size` bytes at a position, or fewer at the end; raises BadArchive."""
        with self._lock:
            if self._unpacked is None and position < self._position:
                self._unpack()
            if self._unpacked is not None:
                return self._from_file(self._unpacked, position, size)
            while self._position < position and self._next(min(PIECE, position - self._position)):
                pass
            if self._position < position:
                return b""
            found = bytearray()
            while len(found) < size and (piece := self._next(min(PIECE, size - len(found)))):
                found += piece
            return bytes(found)

    def close(self) -> None:
        """Release the files; may be called again."""
        if self._file is not None:
            self._file.close()
        self._packed.close()

    def _next(self, size: int) -> bytes:
        """Return the next bytes of the stream, none at its end."""
        try:
            found = self._stream.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            if str(error).startswith("Memory usage limit"):
                raise BadArchive(
                    f"the compressed TAR takes more than {self._limits.memory} bytes of memory to "
                    "be decompressed; compress it by `xz -6`, or send it as ZIP or plain TAR"
                ) from None
            raise BadArchive(
                f"the compressed TAR is damaged after {self._position} unpacked bytes ({error})"
            ) from None
        self._position += len(found)
        self._limits.check_expansion(self._position, self._packed.size)
        return found

    def _unpack(self) -> None:
        """Write everything, or what comes before a damage, to a temporary file."""
        self._stream, self._position = Decompression(self._packed, self._kind, self._limits), 0
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # closed by `close`
        try:
            while piece := self._next(PIECE):
                if self._position > MOST_UNPACKED:
                    raise BadArchive(
                        f"the compressed TAR unpacks to more than {MOST_UNPACKED} bytes and can "
                        "only be read in its own order; send it as ZIP or as plain TAR"
                    )
                self._file.write(piece)
        except BadArchive as error:
            self._damage = error.with_traceback(None)
        self._file.flush()
        self._unpacked = FileContent(self._file)

    def _from_file(self, unpacked: FileContent, position: int, size: int) -> bytes:
        if self._damage is not None and position + size > unpacked.size:
            raise self._damage
        return unpacked.read_at(position, size)
