"""For every test of decoder processes: none fails because the machine is busy."""

from collections.abc import AsyncIterator

import pytest

from app.decoders import DecoderPool
from tests.decoder_pool import pool_of
from tests.server import PATIENCE


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes take any time to start and to end."""
    monkeypatch.setattr("app.decoders.pool.START_WITHIN", PATIENCE)
    monkeypatch.setattr("app.decoders.pool.END_WITHIN", PATIENCE)


@pytest.fixture
async def pool() -> AsyncIterator[DecoderPool]:
    """Return a pool of two processes, which is closed after the test."""
    async with pool_of() as made:
        yield made
