"""Lists of sources: one path or URL on each line, or separated by NUL bytes."""

import os
import shutil
import stat
import sys
import tempfile
import weakref
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import nullcontext
from typing import BinaryIO

from app.bulk.errors import WrongUsage
from app.bulk.sources.contents import STANDARD_INPUT

PIECE = 1 << 16


class SourceList:
    """The entries of a list that are not empty; several iterations may be under way.

    A list on standard input, or in a pipe, is copied to a temporary file first, so that its length
    does not matter; the file has no name, and so a process that is killed leaves none. `separator`
    is a newline or a NUL byte. WrongUsage if the list cannot be read.
    """

    def __init__(self, file: str, separator: bytes = b"\n") -> None:
        self._file = file
        self._copied: BinaryIO | None = None
        self._separator = separator
        self.name = "standard input" if file == STANDARD_INPUT else file
        try:
            if file == STANDARD_INPUT:
                self._copy(sys.stdin.buffer)
            else:
                with open(file, "rb") as opened:
                    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                        self._copy(opened)
        except OSError as error:
            raise WrongUsage(f"--from: {file}: {error.strerror}") from None

    def __iter__(self) -> Iterator[str]:
        try:
            copy = self._copied
            with nullcontext(copy) if copy is not None else open(self._file, "rb") as file:
                rest = os.pread(file.fileno(), len(BOM_UTF8), 0).removeprefix(BOM_UTF8)
                position = len(BOM_UTF8)
                while piece := os.pread(file.fileno(), PIECE, position):
                    position += len(piece)
                    *whole, rest = (rest + piece).split(self._separator)
                    yield from filter(None, map(self._entry, whole))
                yield from filter(None, map(self._entry, rest.split(self._separator)))
        except OSError as error:
            raise WrongUsage(f"--from: {self._file}: {error.strerror}") from None

    def _copy(self, source: BinaryIO) -> None:
        self._copied = tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)
        weakref.finalize(self, self._copied.close)
        shutil.copyfileobj(source, self._copied)
        self._copied.flush()

    def _entry(self, raw: bytes) -> str:
        if self._separator == b"\n":
            raw = raw.rstrip(b"\r")
            return os.fsdecode(raw) if raw.strip() else ""
        return os.fsdecode(raw)
