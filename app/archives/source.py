"""Bytes at a position of a file, for several threads."""

import os
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Protocol


class Content(Protocol):
    """Bytes that can be read at any position."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return `size` bytes at a position, or fewer at the end."""

    def close(self) -> None:
        """Release what is open."""


class FileContent:
    """The bytes of a file of `size` bytes; a file that was given open stays open.

    A file of the operating system is read by `pread`, which needs no lock.
    """

    def __init__(self, source: str | Path | BinaryIO) -> None:
        self._own = isinstance(source, (str, Path))
        # Closed by `close`, at the end of the archive's block.
        self._file = open(source, "rb") if isinstance(source, (str, Path)) else source  # noqa: SIM115
        self._lock = Lock()
        try:
            self._descriptor: int | None = self._file.fileno()
        except OSError:
            self._descriptor = None
        self.size = self._file.seek(0, os.SEEK_END)

    def read_at(self, position: int, size: int) -> bytes:
        """Return `size` bytes at a position, or fewer at the end."""
        if position >= self.size:  # an archive may state one that no system call takes
            return b""
        if self._descriptor is None:
            with self._lock:
                self._file.seek(position)
                return self._file.read(size)
        pieces: list[bytes] = []
        while size > 0 and (piece := os.pread(self._descriptor, size, position)):
            pieces.append(piece)
            position += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Close the file if it was opened here; may be called again."""
        if self._own:
            self._file.close()
