"""A pool of decoder processes for one test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.decoders import DecoderLimits, DecoderPool

LIMITS = DecoderLimits(processes=2, max_pixels=4_000_000, max_file=4 << 20, seconds=10.0)


@asynccontextmanager
async def pool_of(limits: DecoderLimits = LIMITS) -> AsyncIterator[DecoderPool]:
    """Make a pool, and close it when the block ends."""
    pool = DecoderPool(limits)
    try:
        yield pool
    finally:
        await pool.aclose()
