"""What a body is counted by reads no row of other jobs, also in an earlier release's database."""

import asyncio
from pathlib import Path

from sqlalchemy import text

from app.jobs.store.database import opened


def test_indexes_that_tables_of_an_earlier_release_lack_are_made(tmp_path: Path) -> None:
    async def test() -> None:
        engine = await opened(None, tmp_path)
        async with engine.begin() as connection:
            await connection.execute(text("DROP INDEX darkroom_jobs_stored"))
        await engine.dispose()
        engine = await opened(None, tmp_path)
        try:
            async with engine.connect() as connection:
                for query in (
                    "SELECT sum(stored) FROM darkroom_jobs",
                    "SELECT sum(stored) FROM darkroom_jobs WHERE client = 'me'",
                    "SELECT count(*) FROM darkroom_jobs WHERE client = 'me' AND state = 'queued'",
                ):
                    found = await connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))
                    plan = " ".join(str(row) for row in found)
                    assert "COVERING INDEX" in plan, plan
        finally:
            await engine.dispose()

    asyncio.run(test())
