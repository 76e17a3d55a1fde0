"""The content of a compressed file at any position, with bounded memory and a bounded total."""

import bz2
import gzip
import io
import lzma
import tempfile
import zlib
from threading import Lock
from typing import IO, Any, BinaryIO, cast

from app.archives.limits import ArchiveLimits
from app.archives.source import FileContent
from models.domain.errors import BadArchive

MOST_UNPACKED = 4 << 30
"""Largest number of bytes of a temporary file that holds a compressed TAR unpacked."""

XZ_MEMORY = 128 << 20
"""Largest number of bytes that an .xz may ask for; `xz -9` takes 65 MiB."""

_PIECE = 1 << 16

MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
"""The first bytes of compressed files, and what they are."""


class Expansion:
    """The unpacked content of a file of the kind `gz`, `bz2` or `xz`.

    Reading forward unpacks as it goes. The first read at an earlier position unpacks everything
    into an unnamed temporary file, because starting again for each read would take quadratic time.
    """

    def __init__(self, packed: FileContent, kind: str, limits: ArchiveLimits) -> None:
        self._packed, self._kind, self._limits = packed, kind, limits
        self._lock = Lock()
        self._stream = self._opened()
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
            while self._position < position and self._next(min(_PIECE, position - self._position)):
                pass
            if self._position < position:
                return b""
            found = bytearray()
            while len(found) < size and (piece := self._next(min(_PIECE, size - len(found)))):
                found += piece
            return bytes(found)

    def close(self) -> None:
        """Release the files; may be called again."""
        self._stream.close()
        if self._file is not None:
            self._file.close()
        self._packed.close()

    def _opened(self) -> IO[bytes]:
        source = cast(BinaryIO, io.BufferedReader(_Sequential(self._packed), _PIECE))
        if self._kind == "gz":
            return cast(IO[bytes], gzip.GzipFile(fileobj=source, mode="rb"))
        if self._kind == "bz2":
            return bz2.BZ2File(source, "rb")
        return cast(IO[bytes], io.BufferedReader(_Xz(source), _PIECE))

    def _next(self, size: int) -> bytes:
        """Return the next bytes of the stream, none at its end."""
        try:
            found = self._stream.read(size)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise BadArchive(
                f"the compressed TAR is damaged after {self._position} unpacked bytes ({error})"
            ) from None
        self._position += len(found)
        self._limits.check_expansion(self._position, self._packed.size)
        return found

    def _unpack(self) -> None:
        """Write everything, or what comes before a damage, to a temporary file."""
        self._stream.close()
        self._stream, self._position = self._opened(), 0
        self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115  # closed by `close`
        try:
            while piece := self._next(_PIECE):
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


class _Sequential(io.RawIOBase):
    """A reader of its own over content that several share."""

    def __init__(self, content: FileContent) -> None:
        self._content, self._position = content, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._content.read_at(self._position, len(buffer))
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


class _Xz(io.RawIOBase):
    """Reader of .xz streams with a bound of memory, which Python's LZMAFile cannot have.

    An .xz states the size of its dictionary, up to 4 GiB, which liblzma allocates.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._decompressor = self._new()

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._source.read(_PIECE)
                if not rest.strip(b"\0"):  # streams may be followed by padding
                    return 0
                self._decompressor = self._new()
            elif self._decompressor.needs_input:
                rest = self._source.read(_PIECE)
                if not rest:
                    raise EOFError("it ends early")
            else:
                rest = b""
            found = self._decompressor.decompress(rest, len(buffer))
            if found:
                buffer[: len(found)] = found
                return len(found)
