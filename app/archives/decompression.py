"""Decompress gzip, bzip2 and xz forward, so that another thread can stop it at any time.

Python's file objects for these formats loop inside one call while there is no content: over a name
of megabytes in the header of a gzip, or over a million empty streams. Here each step takes at most
PIECE packed bytes, and both are bounded.
"""

import bz2
import lzma
import zlib
from typing import Protocol

from app.archives.limits import ArchiveLimits
from app.archives.source import FileContent
from models.domain.errors import BadArchive

PIECE = 1 << 16
"""Packed bytes, and unpacked ones, of one step."""

MOST_WITHOUT_CONTENT = 2 << 20
"""Packed bytes in a row that may have no content. A block of bzip2 has up to 0.9 MB."""

STREAMS = 10_000
"""Streams in one file beside one for each CONTENT_PER_STREAM bytes that they unpack to."""

CONTENT_PER_STREAM = 1 << 14
"""Bytes: the streams of programs that compress in parallel (bgzip, pbzip2) have more."""

MAGIC = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
"""The first bytes of compressed files, and what they are."""


class Decompressor(Protocol):
    """What decompresses one stream, as `bz2` and `lzma` have it."""

    @property
    def eof(self) -> bool:
        """Return whether the stream has ended."""

    @property
    def needs_input(self) -> bool:
        """Return whether more content needs more packed bytes."""

    @property
    def unused_data(self) -> bytes:
        """Return the packed bytes behind the end of the stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes of content."""


class Decompression:
    """The content of a file of streams of one `kind` (`gz`, `bz2`, `xz`) that follow each other.

    Zeros may stand between and behind the streams.
    """

    def __init__(self, packed: FileContent, kind: str, limits: ArchiveLimits) -> None:
        self._packed, self._kind, self._limits = packed, kind, limits
        self._place = 0
        self._decompressor = self._new()
        self._streams = 1
        self._total = self._without_content = 0
        self._content, self._at = b"", 0

    def read(self, size: int) -> bytes:
        """Return 1 to `size` bytes, none at the end.

        Raises BadArchive, and for damaged data what the decompressors raise: OSError, EOFError,
        zlib.error and lzma.LZMAError.
        """
        while self._at == len(self._content):
            content = self._step()
            if content is None:
                return b""
            self._content, self._at = content, 0
        found = self._content[self._at : self._at + size]
        self._at += len(found)
        return found

    def _step(self) -> bytes | None:
        """Return the content of the next piece, which may have none; None at the end."""
        self._limits.check_stop()
        packed = b""
        if self._decompressor.eof:
            packed = self._decompressor.unused_data.lstrip(b"\0") or self._input().lstrip(b"\0")
            if packed and self._kind == "bz2" and not packed.startswith(b"BZh"[: len(packed)]):
                self._place = self._packed.size  # as bzip2, which ignores what follows the streams
                return None
            if packed:
                self._next_stream()
            elif self._place >= self._packed.size:
                return None
        elif self._decompressor.needs_input:
            packed = self._input()
            if not packed:
                raise EOFError("it ends early")
        if self._decompressor.eof:
            return b""  # all of the piece was padding
        content = self._decompressor.decompress(packed, PIECE)
        self._total += len(content)
        if content:
            self._without_content = 0
        return content

    def _input(self) -> bytes:
        """Return the next packed bytes; raise BadArchive where too many had no content."""
        piece = self._packed.read_at(self._place, PIECE)
        self._place += len(piece)
        self._without_content += len(piece)
        if self._without_content > MOST_WITHOUT_CONTENT:
            raise BadArchive(
                f"the compressed TAR has more than {MOST_WITHOUT_CONTENT} bytes in a row without "
                "content, for instance in a header; compress it again"
            )
        return piece

    def _next_stream(self) -> None:
        self._streams += 1
        most = STREAMS + self._total // CONTENT_PER_STREAM
        if self._streams > most:
            raise BadArchive(
                f"the compressed TAR has more than {most} compressed streams, one behind the "
                "other; compress it again as one"
            )
        self._decompressor = self._new()

    def _new(self) -> Decompressor:
        if self._kind == "gz":
            return _Gzip()
        if self._kind == "bz2":
            return bz2.BZ2Decompressor()
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=self._limits.memory)


class _Gzip:
    """zlib for one stream of gzip, as a Decompressor."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        content = self._inflate.decompress(self._inflate.unconsumed_tail or data, max_length)
        # Content may be left also where all packed bytes were taken.
        self.needs_input = not self._inflate.unconsumed_tail and len(content) < max_length
        return content
