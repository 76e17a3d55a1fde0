"""What an image may take in a decoder process is asked for, and limited, by its estimate."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.decoders import DecoderPool, Limits, Seen, Unasked
from models.domain.errors import Undecodable
from tests.chaos.hostile.tiff import large_tile
from tests.server import PATIENCE

LIMITS = Limits(processes=1, max_pixels=4_000_000, max_file=4 << 20, seconds=10.0)
UNASKED = Unasked(2_000_000, 2_000_000)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes take any time to start and to report their ends, as on a busy machine."""
    monkeypatch.setattr("app.decoders.pool.EXIT_REPORT", PATIENCE)
    monkeypatch.setattr("app.decoders.processes.START_WITHIN", PATIENCE)
    monkeypatch.setattr("app.decoders.processes.ANSWER_WITHIN", PATIENCE)


def run(test: Callable[[DecoderPool], Awaitable[None]]) -> None:
    async def within() -> None:
        pool = DecoderPool(LIMITS)
        try:
            await test(pool)
        finally:
            await pool.aclose()

    asyncio.run(within())


def test_few_pixels_that_take_much_memory_are_asked_for_before_they_are_decoded() -> None:
    async def test(pool: DecoderPool) -> None:
        data = without_pixels(large_tile(64, 2048, samples=4, bits=16))
        found = await pool.decode(data, len(data), lambda _seen: False, UNASKED)
        assert isinstance(found, Seen)
        assert found.memory > 32 << 20
        data = without_pixels(large_tile(64, 1024, samples=4, bits=16))
        with pytest.raises(Undecodable):
            await pool.decode(data, len(data), lambda _seen: False, UNASKED)

    run(test)


def without_pixels(tiff: bytes) -> bytes:
    """Return a TIFF whose compressed pixels, which begin at byte 8, are broken."""
    return tiff[:8] + b"broken" + tiff[14:]
