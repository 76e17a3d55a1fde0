"""Limit the rate of each client by a token bucket that all front ends share.

A bucket holds up to `burst` tokens and gains `per_second` tokens a second; an image takes one. The
buckets are kept in a set-associative table of fixed size: a client's hash selects a set of `WAYS`
places, in which the least recently used bucket is replaced by a new one. A bucket that was not used
for `burst / per_second` seconds is full anyway, so a replacement seldom gives tokens away. Between
processes a lock on the memory's descriptor protects the table. The kernel releases it if its owner
dies; it is held for some microseconds, and only if a rate limit is set.
"""

import fcntl
import hashlib
import mmap
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SETS = 1024
WAYS = 8

_BUCKET = struct.Struct("=Qdd")
"""The client's hash (0 if empty), tokens, and the monotonic seconds when they were counted."""

SIZE = SETS * WAYS * _BUCKET.size
"""Bytes of the table."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens that a bucket gains in a second, and tokens that it holds at most."""

    per_second: float
    burst: float

    @classmethod
    def parse(cls, text: str | None) -> "Rate | None":
        """Parse images a second and at once, `10/40`, or `10` for both; return None for no rate."""
        if not text:
            return None
        per_second, _, burst = text.partition("/")
        rate = float(per_second)
        return cls(rate, float(burst) if burst else max(1.0, rate))


class RateTable:
    """The buckets of all clients, in `SIZE` bytes of `memory` from `offset` on.

    With a descriptor other processes share that memory. `seed` hides which clients share a set.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        seed: bytes,
        offset: int = 0,
        fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory
        self._seed = seed
        self._offset = offset
        self._fd = fd
        self._clock = clock

    def take(self, client: str, amount: float, rate: Rate) -> float:
        """Take tokens of a client; return 0 if there were enough, else the seconds until there are.

        An amount above the burst needs a full bucket, and leaves a negative number of tokens.
        """
        digest = hashlib.blake2b(client.encode(), digest_size=8, key=self._seed).digest()
        number = int.from_bytes(digest, "little") or 1
        with self._locked():
            now = self._clock()
            place, tokens = self._find(number, now, rate)
            needed = min(amount, rate.burst)
            if tokens < needed:
                _BUCKET.pack_into(self._memory, place, number, tokens, now)
                return (needed - tokens) / rate.per_second
            _BUCKET.pack_into(self._memory, place, number, tokens - amount, now)
            return 0.0

    def _find(self, number: int, now: float, rate: Rate) -> tuple[int, float]:
        """Return the place of a client's bucket, old or new, and its tokens now."""
        start = self._offset + number % SETS * WAYS * _BUCKET.size
        oldest, oldest_at = start, float("inf")
        for place in range(start, start + WAYS * _BUCKET.size, _BUCKET.size):
            owner, tokens, at = _BUCKET.unpack_from(self._memory, place)
            if owner == number:
                return place, min(rate.burst, tokens + max(0.0, now - at) * rate.per_second)
            if owner == 0:
                at = -1.0
            if at < oldest_at:
                oldest, oldest_at = place, at
        return oldest, rate.burst

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._fd is None:
            yield
            return
        fcntl.lockf(self._fd, fcntl.LOCK_EX, SIZE, self._offset)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, SIZE, self._offset)
