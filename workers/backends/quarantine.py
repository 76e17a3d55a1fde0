"""Quarantine: content that ended two workers is refused by its hash for a while, by all front ends.

The table is memory behind a descriptor that the supervisor makes, so content that one front end
adds is refused by all of them at once, also by one that starts later. Frames between front ends by
way of a worker would not work: the worker has just died. Writers hold a lock; readers need none,
because the time of an entry is written last. The oldest entry makes room for a new one.
"""

import asyncio
import fcntl
import hashlib
import mmap
import os
import time
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from models.domain.errors import Quarantined
from models.domain.image import Image, Source

ENTRIES = 1024
DIGEST = 24
"""Bytes of a hash."""
LARGE = 1 << 20
"""Bytes from which content is hashed on a thread: a hash takes about 1 ms for each MB."""
INNOCENT = 256
"""Number of contents that are remembered after they were suspected and computed without a crash."""

_ENTRY = np.dtype([("digest", f"V{DIGEST}"), ("until", np.float64)])

_LAST = 8
"""Bytes before the entries: the time at which the last one of them ends, which every job reads."""

_BYTES = _LAST + ENTRIES * _ENTRY.itemsize


QUARANTINE_SECONDS = 300.0
"""Seconds for which an image that ended two workers is refused."""


class Quarantine:
    """Table that refuses content for `seconds` after it was added; `fd` is memory that processes
    share.

    Content that was suspected once and then computed without a crash is not added for as long: its
    worker ended for another reason, an operator for example.
    """

    def __init__(
        self,
        seconds: float = 0.0,
        fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fd = fd
        self._seconds = seconds
        self._clock = clock
        memory = mmap.mmap(-1 if fd is None else fd, _BYTES)
        self._last = memoryview(memory)[:_LAST].cast("d")
        self._entries = np.frombuffer(memory, _ENTRY, ENTRIES, _LAST)
        self._innocent: OrderedDict[bytes, float] = OrderedDict()

    @classmethod
    def create(cls) -> "Quarantine":
        """Return an empty table, to be passed on by its descriptor. Linux only."""
        fd = os.memfd_create("darkroom-quarantine", os.MFD_CLOEXEC)
        os.ftruncate(fd, _BYTES)
        return cls(fd=fd)

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd is not None:
            os.close(self.fd)

    async def check(self, source: Source) -> None:
        """Raise Quarantined for content that is refused now; costs nothing when none is."""
        now = self._clock()
        if not self._seconds or self._last[0] <= now:
            return
        digest = np.void(await digest_of(source))
        for until in self._entries["until"][self._entries["digest"] == digest]:
            if until > now:
                raise Quarantined(
                    "this image ended two of the processes that computed it; it is refused for "
                    f"another {until - now:.0f} seconds"
                )

    async def add(self, source: Source) -> None:
        """Refuse this content from now on, unless it was computed well a while ago."""
        digest, now = await digest_of(source), self._clock()
        if not self._seconds or now - self._innocent.get(digest, -self._seconds) < self._seconds:
            return
        if self.fd is not None:
            fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            oldest = int(self._entries["until"].argmin())
            self._entries["until"][oldest] = 0.0
            self._entries["digest"][oldest] = np.void(digest)
            self._entries["until"][oldest] = now + self._seconds
            self._last[0] = max(self._last[0], now + self._seconds)
        finally:
            if self.fd is not None:
                fcntl.lockf(self.fd, fcntl.LOCK_UN)

    async def clear(self, source: Source) -> None:
        """Remember that content which was suspected has been computed well."""
        self._innocent[await digest_of(source)] = self._clock()
        if len(self._innocent) > INNOCENT:
            self._innocent.popitem(last=False)


async def digest_of(source: Source) -> bytes:
    """Return the hash that identifies an image's pixels, or a file's bytes."""
    content = source.pixels if isinstance(source, Image) else source.data
    if content.nbytes < LARGE:
        return _digest(content)
    return await asyncio.to_thread(_digest, content)


def _digest(content: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> bytes:
    hashed = hashlib.blake2b(repr(content.shape).encode(), digest_size=DIGEST)
    hashed.update(np.ascontiguousarray(content).data)
    return hashed.digest()
