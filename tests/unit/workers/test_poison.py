"""Poison in a real worker process: only the poisonous image fails, whatever it does to the worker.

A supervisor starts the process again, as in production.
"""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator

import pytest

from models.domain.errors import InternalError, ServiceError, WorkerLost
from models.domain.job import Labels
from tests.fakes import fake_job
from tests.poisoned import EATS_MEMORY, EXITS, RAISES
from tests.worker_fixture import ARENA, OwnWork
from workers.backends.multi_process import ProcessBackend


async def _kept(name: str) -> None:
    """Run a worker process, and another one whenever it has ended."""
    while True:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.poisoned", name)
        try:
            await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise


@contextlib.asynccontextmanager
async def backend() -> AsyncIterator[ProcessBackend]:
    name = f"darkroom-test-{secrets.token_hex(8)}"
    keeping = asyncio.create_task(_kept(name))
    made = ProcessBackend(["\0" + name], ARENA, OwnWork(1), 20.0)
    try:
        yield made
    finally:
        await made.aclose()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize(
    ("poison", "error"),
    [(RAISES, InternalError), (EATS_MEMORY, InternalError), (EXITS, WorkerLost)],
)
async def test_only_the_poisonous_image_fails_and_its_neighbours_are_answered(
    poison: int, error: type[ServiceError]
) -> None:
    async with asyncio.timeout(100), backend() as ours:
        numbers = [*range(12), poison, *range(12, 24)]
        tasks = [asyncio.create_task(ours.run(fake_job(n))) for n in numbers]
        guilty = tasks.pop(12)
        answers = [(await task).result for task in tasks]
        assert [a.class_ids[0] for a in answers if isinstance(a, Labels)] == list(range(24))
        with pytest.raises(error) as caught:
            await guilty
        assert "secret" not in caught.value.detail
