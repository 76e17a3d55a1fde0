"""A database has the indexes of this release, and only its owner may read it."""

import asyncio
import fcntl
import logging
import os
from pathlib import Path

import pytest
from sqlalchemy import text

from app.jobs.files import DataFolder
from app.jobs.store.database import opened
from tests.server import until


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


@pytest.mark.parametrize("name", ["lock", "jobs.sqlite3"])
def test_a_data_folder_with_files_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"the database of jobs at .* cannot be used"):
        asyncio.run(opened(None, tmp_path))


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of a folder and of all that is in it, by name."""
    return {each.name: each.stat().st_mode & 0o777 for each in (folder, *folder.iterdir())}


@pytest.mark.parametrize("earlier", [False, True])
def test_only_the_owner_may_read_the_data_folder(tmp_path: Path, earlier: bool) -> None:
    root, before = tmp_path / "parent" / "data", os.umask(0)
    try:
        if earlier:
            (root / "jobs").mkdir(parents=True)
            (root / "jobs.sqlite3").touch()
        DataFolder(root).make()

        async def test() -> dict[str, int]:
            engine = await opened(None, root)
            try:
                async with engine.begin() as connection:
                    await connection.execute(text("UPDATE darkroom_meta SET value = value"))
                    return modes(root)
            finally:
                await engine.dispose()

        found = asyncio.run(test())
    finally:
        os.umask(before)
    assert {"jobs.sqlite3", "jobs.sqlite3-wal", "jobs.sqlite3-shm", "lock"} < found.keys()
    folders = {"data": 0o700, "jobs": 0o700}
    assert found == {name: folders.get(name, 0o600) for name in found}


def test_waiting_for_the_lock_is_logged_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        with (tmp_path / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            opening = asyncio.create_task(opened(None, tmp_path))
            await asyncio.to_thread(until, lambda: bool(caplog.messages))
            assert not opening.done()
        await (await opening).dispose()

    with caplog.at_level(logging.WARNING):
        asyncio.run(test())
    assert caplog.messages[0].startswith(
        f"process {os.getpid()} waits for the lock {tmp_path}/lock"
    )
