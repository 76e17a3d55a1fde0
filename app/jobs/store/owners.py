"""The leases of processes that work on chunks: a process that dies loses what it has claimed."""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Update, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.tables import OWNERS

log = logging.getLogger("darkroom.jobs")

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
