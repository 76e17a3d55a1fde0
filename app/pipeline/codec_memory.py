"""Memory that images take while they are decoded and encoded, over all front ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from app.admission.counters import Counters
from app.admission.fields import Mark, Total
from app.admission.gate import Gate, TotalPool

SMALL = 64 << 20
"""Estimated bytes of an image that never waits: decoding 2 megapixels takes less."""

LEAST = 512 << 20
"""Bytes of the budget, where the settings say nothing and there are few decoder processes."""

PER_PROCESS = 192 << 20
"""Bytes of the budget for each process beyond: decoding a PNG of 12 megapixels takes 150 MB."""


def budget_for(setting: int, processes: int) -> int:
    """Return the bytes of the budget of a server with `processes` decoder processes in all."""
    return setting or max(LEAST, PER_PROCESS * processes)


class CodecMemory:
    """Two budgets in bytes, by estimate: what does not fit waits in line, until its deadline.

    One is for decoding; an image holds its part until it is done, so that those which wait hold
    neither pixels nor room for them. The other is for encoding, which takes more than decoding for
    some formats, and which images wait for that hold a part of the first. An image whose estimate
    is above a whole budget is let in alone. Lives on one event loop; front ends with the same
    `counters` share the budgets.
    """

    def __init__(self, limit: int, counters: Counters | None = None) -> None:
        counters = counters or Counters()
        self._limit = limit
        self._decoding, self._encoding = (
            Gate(TotalPool(counters, total, mark, limit))
            for total, mark in (
                (Total.DECODE_MEMORY, Mark.DECODE_MEMORY_SINCE),
                (Total.ENCODE_MEMORY, Mark.ENCODE_MEMORY_SINCE),
            )
        )

    def limit(self) -> int:
        """Return the bytes of each budget."""
        return self._limit

    @asynccontextmanager
    async def decoding(self, n_bytes: int) -> AsyncIterator[None]:
        """Wait for `n_bytes`, then hold them while the block runs; few bytes are not counted."""
        async with self._decoding.hold(n_bytes) if n_bytes > SMALL else nullcontext():
            yield

    @asynccontextmanager
    async def encoding(self, n_bytes: int) -> AsyncIterator[None]:
        """Hold memory as `decoding` does, of the other budget."""
        async with self._encoding.hold(n_bytes) if n_bytes > SMALL else nullcontext():
            yield
