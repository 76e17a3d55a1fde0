"""A pool of decoder processes for one test."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from PIL import Image

from app.decoders.pool import DecoderLimits, DecoderPool

LIMITS = DecoderLimits(processes=2, max_pixels=4_000_000, max_file=4 << 20, seconds=10.0)


def drawn(format_: str = "PNG", side: int = 32, **options: object) -> bytes:
    """Return a file of noise."""
    rng = np.random.default_rng(side)
    file = io.BytesIO()
    noise = rng.integers(0, 256, (side, side, 3), np.uint8)
    Image.fromarray(noise).save(file, format_, **options)
    return file.getvalue()


@asynccontextmanager
async def pool_of(limits: DecoderLimits = LIMITS) -> AsyncIterator[DecoderPool]:
    """Make a pool, and close it when the block ends."""
    pool = DecoderPool(limits)
    try:
        yield pool
    finally:
        await pool.aclose()
