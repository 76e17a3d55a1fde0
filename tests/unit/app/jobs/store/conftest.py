"""A database for each test of the tables of jobs."""

import asyncio
from pathlib import Path

import pytest

from tests.job_store import Run, Test, stores


@pytest.fixture(params=["sqlite", "postgresql"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return what runs a test with empty tables of a database."""
    url = None
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").database()

    async def test_with(test: Test) -> None:
        async with stores(url, tmp_path) as store:
            await test(store)

    return lambda test: asyncio.run(test_with(test))
