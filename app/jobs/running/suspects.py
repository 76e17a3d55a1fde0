"""Find the item of a chunk whose work ends the process each time, so that its job can end.

The items of a chunk that was begun several times are done one at a time. A file beside the manifest
says which one was under way: each item adds a line when it is begun, and one when it has ended in
any way but with its process.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.jobs.files import private

CAREFUL = 3
"""The attempt of a chunk from which on its items are done one at a time."""

DEATHS = 2
"""Processes that ended with an item alone under way, after which it is not tried again: the first
may have been killed for another reason."""

_BEGUN, _ENDED = "+", "-"


class Suspects:
    """The items of one chunk that were under way when a process ended; the file is at `path`.

    `read` and writing block; the chunk has one owner, so no other process writes meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._deaths = Counter[int]()

    def read(self) -> None:
        """Count the items that were begun and did not end."""
        if not self._path.exists():
            return
        for text in self._path.read_text("ascii").splitlines():
            sign, number = text[:1], text[1:]
            if number.isdecimal() and sign in (_BEGUN, _ENDED):
                self._deaths[int(number)] += 1 if sign == _BEGUN else -1

    def blames(self, index: int) -> bool:
        """Return whether an item has ended as many processes as it may."""
        return self._deaths[index] >= DEATHS

    @asynccontextmanager
    async def under_way(self, index: int) -> AsyncIterator[None]:
        """Note that an item is under way during the block; raises OSError."""
        try:
            # A thread that has begun writes its line also after a cancellation, perhaps last.
            await asyncio.to_thread(self._add, f"{_BEGUN}{index}\n")
            yield
        finally:
            # It does not wait: a task that is cancelled must write it all the same.
            self._add(f"{_ENDED}{index}\n")

    def _add(self, text: str) -> None:
        """Append a line that outlives this process and its host."""
        descriptor = private(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, text.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
