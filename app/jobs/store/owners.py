"""The leases of processes that work on chunks: a process that dies loses what it has claimed."""

import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.tables import JOBS, OWNERS

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
        row = {
            "id": self.id,
            "host": host(),
            "pid": os.getpid(),
            "began": began(os.getpid()) or "",
            "until": self._clock() + LEASE,
            "arriving": 0,
        }
        here = select(OWNERS).where(OWNERS.c.host == row["host"])
        async with self._engine.begin() as connection:
            await connection.execute(insert(OWNERS), [row])
            found = await connection.execute(here)
            dead = [each.id for each in found if began(each.pid) != each.began]
            await connection.execute(delete(OWNERS).where(OWNERS.c.id.in_(dead)))
            old = OWNERS.c.until < self._clock() - 100 * LEASE
            await connection.execute(delete(OWNERS).where(old))

    async def renew(self) -> None:
        """Prolong the lease."""
        mine = update(OWNERS).where(OWNERS.c.id == self.id)
        async with self._engine.begin() as connection:
            await connection.execute(mine.values(until=self._clock() + LEASE))

    async def reserve(self, n_bytes: int, most: int) -> bool:
        """Count bytes that arrive at this process, or fewer where `n_bytes` is negative.

        Return False, and count nothing, if they and all that is stored and arriving exceed `most`.
        What a process that died had reserved counts until its lease ends.
        """
        mine = update(OWNERS).where(OWNERS.c.id == self.id)
        stored = select(func.coalesce(func.sum(JOBS.c.stored), 0))
        arriving = select(func.coalesce(func.sum(OWNERS.c.arriving), 0)).where(
            OWNERS.c.until > self._clock()
        )
        async with self._engine.connect() as connection:
            await connection.execute(mine.values(arriving=OWNERS.c.arriving + n_bytes))
            if n_bytes > 0:
                held = int(await connection.scalar(stored) or 0)
                if held + int(await connection.scalar(arriving) or 0) > most:
                    return False
            await connection.commit()
        return True

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
