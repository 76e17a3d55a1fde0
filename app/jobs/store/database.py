"""Open the database of jobs (SQLite in the data folder, or PostgreSQL), and hold a lease in it."""

import asyncio
import fcntl
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, Update, delete, event, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from app.jobs.files import DATABASE, LOCK, private
from app.jobs.store.tables import META, METADATA, OWNERS, VERSION

log = logging.getLogger("darkroom.jobs")

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


# The leases of processes that work on chunks: a process that dies loses what it has claimed.
LEASE = 30.0
"""Seconds after the last sign of life of a process until others take its chunks over."""


class Owner:
    """The lease of this process, under a name that no other process ever has."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock
        self.id = secrets.token_hex(16)

    async def enter(self) -> None:
        """Begin the lease; end those of processes of this host that have died."""
        here = select(OWNERS).where(OWNERS.c.host == host())
        async with self._engine.begin() as connection:
            await connection.execute(insert(OWNERS), [self._row()])
            found = await connection.execute(here)
            dead = [each.id for each in found if began(each.pid) != each.began]
            await connection.execute(delete(OWNERS).where(OWNERS.c.id.in_(dead)))
            old = OWNERS.c.until < self._clock() - 100 * LEASE
            await connection.execute(delete(OWNERS).where(old))

    async def renew(self) -> None:
        """Prolong the lease.

        A process that was stopped for longer than its lease finds it removed, and begins a new one.
        Other processes have its chunks by then. Without a lease they would take those that it
        claims later, too.
        """
        until = self._mine.values(until=self._clock() + LEASE)
        async with self._engine.begin() as connection:
            if (await connection.execute(until)).rowcount:
                return
            log.warning("the lease of this process on jobs was lost; it begins anew")
            await connection.execute(insert(OWNERS), [self._row()])

    def _row(self) -> dict[str, str | int | float]:
        """Return the row of a lease that begins now."""
        return {
            "id": self.id,
            "host": host(),
            "pid": os.getpid(),
            "began": began(os.getpid()) or "",
            "until": self._clock() + LEASE,
        }

    @property
    def _mine(self) -> Update:
        return update(OWNERS).where(OWNERS.c.id == self.id)

    async def leave(self) -> None:
        """End the lease."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(OWNERS).where(OWNERS.c.id == self.id))


def host() -> str:
    """Return a name of this host since its boot, and of its namespace of process ids.

    Two containers of one host have different ones, because they do not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"[:128]
    except OSError:
        return socket.gethostname()[:128]


def began(pid: int) -> str | None:
    """Return when a process was started, in clock ticks since boot; None if there is none.

    Without /proc nothing is known, and leases end by time alone.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else ""
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]
