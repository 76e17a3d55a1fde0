"""Lists of sources: one path or URL on each line, or separated by NUL bytes."""

import os
import shutil
import stat
import sys
import tempfile
import weakref
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO, cast

from app.bulk.errors import WrongUsage
from app.bulk.sources.contents import STANDARD_INPUT

PIECE = 1 << 16


class SourceList:
    """The entries of a list that are not empty; it can be gone through several times.

    A list on standard input, or in a pipe, is copied to an unnamed temporary file first, so that
    its length does not matter. `separator` is a newline or a NUL byte. WrongUsage if the list
    cannot be read.
    """

    def __init__(self, file: str, separator: bytes = b"\n") -> None:
        self._file, self._separator = file, separator
        self.name = "standard input" if file == STANDARD_INPUT else file
        self._copy: BinaryIO | None = None
        try:
            if file == STANDARD_INPUT:
                self._copy = self._copied(sys.stdin.buffer)
                return
            with open(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    self._copy = self._copied(opened)
        except OSError as error:
            raise WrongUsage(f"--from: {file}: {error.strerror}") from None

    def __iter__(self) -> Iterator[str]:
        try:
            if self._copy is not None:
                yield from self._entries(self._copy.fileno())
                return
            with open(self._file, "rb") as file:
                yield from self._entries(file.fileno())
        except OSError as error:
            raise WrongUsage(f"--from: {self._file}: {error.strerror}") from None

    def _copied(self, source: BinaryIO) -> BinaryIO:
        copy = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 (closed with this object)
        weakref.finalize(self, copy.close)
        shutil.copyfileobj(source, copy)
        copy.flush()
        return copy

    def _entries(self, descriptor: int) -> Iterator[str]:
        """Yield the entries of an open file; a position of its own lets several go through it."""
        rest = b""
        position = len(BOM_UTF8) if os.pread(descriptor, len(BOM_UTF8), 0) == BOM_UTF8 else 0
        while piece := os.pread(descriptor, PIECE, position):
            position += len(piece)
            *whole, rest = (rest + piece).split(self._separator)
            yield from filter(None, map(self._entry, whole))
        if entry := self._entry(rest):
            yield entry

    def _entry(self, raw: bytes) -> str:
        if self._separator == b"\n":
            raw = raw.rstrip(b"\r")
            return os.fsdecode(raw) if raw.strip() else ""
        return os.fsdecode(raw)
