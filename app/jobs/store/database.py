"""Open the database of jobs: SQLite in the data folder, or a PostgreSQL server."""

import asyncio
import fcntl
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.jobs.files import DATABASE, LOCK, PAIR, private, sync_path
from app.jobs.store.tables import META, METADATA, VERSION

log = logging.getLogger("darkroom.jobs")

MOST_NUMBER = (1 << 31) - 1
"""The highest number of a database and its data folder, which is an INTEGER of SQL."""

BUSY = 30.0
"""Seconds to wait for another process that writes to SQLite, or for a connection of the pool."""


async def opened(url: str | None, folder: Path) -> AsyncEngine:
    """Return a connected engine whose tables exist and have the right version.

    Without a URL it is SQLite in `folder`. The text of ValueError says what is wrong.
    """
    chosen = make_url(url) if url else make_url(f"sqlite+aiosqlite:///{folder / DATABASE}")
    sqlite = chosen.get_backend_name() == "sqlite"
    # BEGIN IMMEDIATE: a transaction that reads first and then waits for a writer would fail.
    given: dict[str, Any] = {"connect_args": {"isolation_level": "IMMEDIATE", "timeout": BUSY}}
    pool = {"pool_size": 4, "max_overflow": 0, "pool_timeout": BUSY, "pool_pre_ping": not sqlite}
    try:
        engine = create_async_engine(chosen, **(given if sqlite else {}), **pool)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"DARKROOM_JOBS_DATABASE needs the package {error.name}; install the extra `postgres`"
        ) from None
    if sqlite or chosen.get_backend_name() == "postgresql":
        event.listen(engine.sync_engine, "connect", _prepare if sqlite else _bound)
    try:
        with await asyncio.to_thread(_locked, folder / LOCK):
            if not url:  # before SQLite makes it readable for others; its other files follow it
                os.close(private(folder / DATABASE, os.O_RDWR | os.O_CREAT))
            async with engine.begin() as connection:
                await connection.run_sync(_create)
                await connection.run_sync(_paired, folder / PAIR)
    except (SQLAlchemyError, OSError) as error:
        await engine.dispose()
        shown = chosen.render_as_string(hide_password=True)
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise ValueError(f"the database of jobs at {shown} cannot be used: {reason}") from None
    except BaseException:
        await engine.dispose()
        raise
    return engine


def _locked(path: Path) -> BinaryIO:
    """Return a file that is locked until it is closed: one process at a time makes tables."""
    file = os.fdopen(private(path, os.O_RDWR | os.O_CREAT), "r+b")
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = (
                "process %s waits for the lock %s, which another process of the data folder holds"
            )
            log.warning(text, os.getpid(), path)
            fcntl.flock(file, fcntl.LOCK_EX)
    except BaseException:
        file.close()
        raise
    return file


def _prepare(connection: Any, _record: object) -> None:
    """Set up a connection of SQLite: readers and one writer at a time, every commit synced."""
    cursor = connection.cursor()
    for each in ("journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {each}")
    cursor.close()


def _bound(connection: Any, _record: object) -> None:
    """Bound what a connection of PostgreSQL waits for, and what it keeps others from.

    A host that loses its power inside of a transaction would else keep its locks until the server
    misses it, which takes two hours by default.
    """
    cursor = connection.cursor()
    for each in ("lock_timeout", "idle_in_transaction_session_timeout"):
        cursor.execute(f"SET {each} = {int(BUSY * 1000)}")
    cursor.close()
    connection.commit()


def _create(connection: Connection) -> None:
    """Create the tables where they are missing; raises ValueError for those of another version."""
    METADATA.create_all(connection, tables=[META])
    found = connection.scalar(select(META.c.value).where(META.c.name == "version"))
    if found is not None and found != VERSION:
        age = "newer" if found > VERSION else "older"
        raise ValueError(
            f"the database of jobs was made by {age} software (version {found}, this one uses "
            f"{VERSION}); use that release, or another DARKROOM_DATA_FOLDER"
        )
    METADATA.create_all(connection)
    for table in METADATA.tables.values():
        for index in table.indexes:  # those that tables of an earlier release lack
            index.create(connection, checkfirst=True)
    if found is None:
        connection.execute(insert(META).values(name="version", value=VERSION))


def _paired(connection: Connection, file: Path) -> None:
    """Give the database and its data folder a number that both keep; ValueError for another pair.

    A host with another folder, or one whose disk is not mounted yet, has no files of the jobs that
    are in the database: it would end all of them as failed, for every host.
    """
    number = connection.scalar(select(META.c.value).where(META.c.name == "folder"))
    here = None
    with suppress(FileNotFoundError, ValueError):
        here = int(file.read_text("ascii"))
    if number is None:
        number = secrets.randbits(31) if here is None else here & MOST_NUMBER
        connection.execute(insert(META).values(name="folder", value=number))
        if here != number:  # before the commit: a number without a file would be refused
            _write(file, f"{number}\n")
    elif here != number:
        raise ValueError(
            f"DARKROOM_DATA_FOLDER {file.parent} is not the folder of the jobs in this database; "
            f"mount that one, or write {number} into {file} if its files are those of the jobs"
        )


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}-{os.getpid()}")
    with open(temporary, "w", encoding="ascii", opener=private) as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, file)
    sync_path(file.parent)  # a database without its number would be refused
