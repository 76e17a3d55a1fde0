"""Bodies of jobs that arrive: their number and their bytes, as all processes count them."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.jobs.store.tables import ARRIVALS, JOBS, META, OWNERS
from app.jobs.store.values import UNFINISHED

T = TypeVar("T")


class Fit(Enum):
    """Whether bytes fit: into the data folder, and into the share of their client."""

    FITS = auto()
    FOLDER_FULL = auto()
    SHARE_FULL = auto()


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is when a body comes: jobs and other bodies of its client, whether its key has
    made a job before, and the bytes that are stored or arrive, of all clients and of its own.
    """

    unfinished: int
    arriving: int
    repeated: bool
    bytes_of_all: int
    bytes_of_client: int


@dataclass(slots=True)
class _Body:
    client: str
    n_bytes: int = 0


class Arrivals:
    """The bodies that arrive at the process `owner`; `clock` returns seconds since 1970.

    What arrives at a process that died counts until its lease ends.
    """

    def __init__(
        self, engine: AsyncEngine, owner: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._clock = clock
        self._here: dict[str, _Body] = {}
        self._committed: set[str] = set()
        """Bodies that have a row, or may have one."""

    async def begin(
        self, id_: str, client: str, key: str | None, check: Callable[[Counts], None]
    ) -> None:
        """Count a body of a client, unless `check` raises an error, which this raises then.

        Bodies that come to several processes at the same moment are checked one after the other.
        """
        self._here[id_] = _Body(client)
        beginning = asyncio.ensure_future(self._settled(id_, self._begin(id_, client, key, check)))
        try:
            # Shielded: aiosqlite 0.22 may wait without end to close a cancelled connection.
            await asyncio.shield(beginning)
        except BaseException:
            if beginning.done() and not beginning.cancelled() and beginning.exception() is None:
                await self.end(id_)  # cancelled just after its row was committed
            else:
                del self._here[id_]
            raise

    async def reserve(self, id_: str, n_bytes: int, most: int, share: int) -> Fit:
        """Count bytes of a body, if with them all clients have at most `most` bytes, and its own
        at most `share`.
        """
        return await asyncio.shield(self._settled(id_, self._reserve(id_, n_bytes, most, share)))

    def became_job(self, id_: str) -> None:
        """Forget a body whose row has ended with the transaction that added its job."""
        self._here.pop(id_, None)
        self._committed.discard(id_)

    async def end(self, id_: str) -> None:
        """Stop counting a body; if the database does not answer, the next `tidy` does so."""
        if self._here.pop(id_, None) is not None:
            self._committed.discard(id_)
            with suppress(SQLAlchemyError, OSError):
                await asyncio.shield(self._remove(ARRIVALS.c.id == id_))

    async def tidy(self) -> None:
        """Remove bodies that do not arrive here any more, and those of processes that died."""
        mine = select(ARRIVALS.c.id).where(ARRIVALS.c.owner == self._owner)
        async with self._engine.connect() as connection:
            known = {*await connection.scalars(mine)}
        # Compared only now: a body is among those here before its row is.
        lost = ARRIVALS.c.id.in_([*known - self._here.keys()])
        await self._remove(lost | ARRIVALS.c.owner.not_in(select(OWNERS.c.id)))

    async def _commit(self, connection: AsyncConnection, id_: str) -> None:
        """Commit the row of a body, unless the body has ended meanwhile."""
        if id_ in self._here:  # else the connection rolls back what was done
            self._committed.add(id_)
            await connection.commit()

    async def _settled(self, id_: str, counting: Coroutine[Any, Any, T]) -> T:
        """Await what counts a body; if the body has ended meanwhile, its row is removed again.

        A body whose task is cancelled ends at once, and what was begun for it goes on.
        """
        try:
            return await counting
        finally:
            if id_ not in self._here and id_ in self._committed:
                self._committed.discard(id_)
                with suppress(SQLAlchemyError, OSError):  # then the next `tidy` finds it
                    await self._remove(ARRIVALS.c.id == id_)

    async def _remove(self, which: ColumnElement[bool]) -> None:
        """Remove rows; two processes that remove the same ones would else lock them crosswise."""
        async with self._engine.begin() as connection:
            await _turn(connection)
            await connection.execute(delete(ARRIVALS).where(which))

    async def _begin(
        self, id_: str, client: str, key: str | None, check: Callable[[Counts], None]
    ) -> None:
        async with self._engine.connect() as connection:
            if id_ not in self._here:  # cancelled while it waited for a connection
                return
            await _turn(connection)
            await connection.execute(insert(ARRIVALS), [self._row(id_, client, 0)])
            found = await self._counted(connection, client, key)
            check(replace(found, arriving=found.arriving - 1))
            await self._commit(connection, id_)

    async def _reserve(self, id_: str, n_bytes: int, most: int, share: int) -> Fit:
        body = self._here[id_]
        wanted = body.n_bytes + n_bytes
        async with self._engine.connect() as connection:
            if id_ not in self._here:
                return Fit.FOLDER_FULL
            await _turn(connection)
            mine = update(ARRIVALS).where(ARRIVALS.c.id == id_).values(n_bytes=wanted)
            if not (await connection.execute(mine)).rowcount:  # after a loss of the lease
                await connection.execute(insert(ARRIVALS), [self._row(id_, body.client, wanted)])
            found = await self._counted(connection, body.client, None)
            if found.bytes_of_all > most:
                return Fit.FOLDER_FULL
            if found.bytes_of_client > share:
                return Fit.SHARE_FULL
            await self._commit(connection, id_)
        body.n_bytes = wanted
        return Fit.FITS

    def _row(self, id_: str, client: str, n_bytes: int) -> dict[str, str | int]:
        return {"id": id_, "owner": self._owner, "client": client, "n_bytes": n_bytes}

    async def _counted(self, connection: AsyncConnection, client: str, key: str | None) -> Counts:
        """Return what there is, with the body itself.

        It is one statement: a body that becomes a job between two would be counted by neither.
        """
        lives = select(OWNERS.c.id).where(OWNERS.c.until >= self._clock())
        arrives = ARRIVALS.c.owner.in_(lives) | (ARRIVALS.c.owner == self._owner)
        here, mine = ARRIVALS.c.client == client, JOBS.c.client == client
        unfinished = JOBS.c.state.in_([each.value for each in UNFINISHED])
        stored = select(func.coalesce(func.sum(JOBS.c.stored), 0))
        arriving = select(func.coalesce(func.sum(ARRIVALS.c.n_bytes), 0)).where(arrives)
        query = select(
            select(func.count()).select_from(JOBS).where(mine, unfinished).scalar_subquery(),
            select(func.count()).select_from(ARRIVALS).where(here, arrives).scalar_subquery(),
            exists().where(mine, JOBS.c.key == (key or "")),  # no key is empty
            stored.scalar_subquery() + arriving.scalar_subquery(),
            stored.where(mine).scalar_subquery() + arriving.where(here).scalar_subquery(),
        )
        jobs, bodies, repeated, of_all, of_client = (await connection.execute(query)).one()
        return Counts(jobs, bodies, bool(repeated), int(of_all), int(of_client))


async def _turn(connection: AsyncConnection) -> None:
    """Let processes of PostgreSQL take turns at this row; those of SQLite do at any write."""
    version = select(META.c.value).where(META.c.name == "version")
    await connection.scalar(version.with_for_update())
