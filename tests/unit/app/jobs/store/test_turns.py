"""Processes that write the same rows take turns, and none waits for a process without end."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store import database
from app.jobs.store.arrivals import Arrivals
from app.jobs.store.tables import META
from tests.fakes import GUARD
from tests.job_store import Run, Store, arrivals
from tests.postgres import Postgres


def engine_of(arriving: Arrivals) -> AsyncEngine:
    return arriving._engine


def test_lost_bodies_are_removed_in_turn_with_bodies_that_come(run: Run) -> None:
    """Two processes that remove the same rows in another order would else wait for each other."""

    async def test(store: Store) -> None:
        here, _ = arrivals(store)
        async with engine_of(here).connect() as other:
            await other.execute(update(META).values(value=META.c.value))  # the turn of another
            tidying = asyncio.create_task(here.tidy())
            done, _ = await asyncio.wait([tidying], timeout=0.5)
            assert not done, "it did not wait for its turn"
            await other.rollback()
        await asyncio.wait_for(tidying, GUARD)

    run(test)


def test_a_host_that_is_gone_inside_of_a_transaction_keeps_the_turn_for_a_bounded_time(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        engine = await database.opened(postgres.database(), tmp_path)
        try:
            async with engine.connect() as gone:
                await gone.execute(select(META.c.value).with_for_update())
                here = Arrivals(engine, "here")
                coming = here.begin("1", "me", None, lambda _: None)
                await asyncio.wait_for(coming, GUARD)
                await gone.invalidate()
        finally:
            await engine.dispose()

    monkeypatch.setattr(database, "BUSY", 2.0)
    asyncio.run(test())
