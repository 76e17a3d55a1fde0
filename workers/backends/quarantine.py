"""Quarantine: content that ended two workers is refused by its hash for a while."""

import asyncio
import hashlib
import time
from collections.abc import Callable

import numpy as np

from models.domain.errors import Quarantined
from models.domain.image import Pixels, Source
from workers.ipc.frames import encode_source

ENTRIES = 1024
"""Contents that are remembered; the oldest makes room for a new content."""

DIGEST = 24
"""Bytes of a hash."""

SECONDS = 300.0
"""Seconds for which an image that ended two workers is refused."""


class Quarantine:
    """The content that a front end refuses, each for `SECONDS` after it was added.

    Every front end learns by itself which content ends workers: an image may end a worker twice for
    each of them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[bytes, float] = {}

    async def check(self, source: Source) -> None:
        """Raise Quarantined for content that is refused now; costs nothing when none is."""
        if not self._until:
            return
        digest, now = await _digest_of(source), self._clock()
        left = self._until.get(digest, now) - now
        if left > 0:
            raise Quarantined(
                "this image ended two of the processes that computed it; it is refused for "
                f"another {left:.0f} seconds"
            )
        self._until.pop(digest, None)

    async def add(self, source: Source) -> None:
        """Refuse this content from now on."""
        self._until[await _digest_of(source)] = self._clock() + SECONDS
        if len(self._until) > ENTRIES:
            del self._until[next(iter(self._until))]


async def _digest_of(source: Source) -> bytes:
    """Return the hash that identifies an image's pixels, or a file's bytes: 1 ms for each MB."""
    return await asyncio.to_thread(_digest, encode_source(source)[0])


def _digest(content: Pixels) -> bytes:
    hashed = hashlib.blake2b(repr(content.shape).encode(), digest_size=DIGEST)
    hashed.update(np.ascontiguousarray(content).data)
    return hashed.digest()
