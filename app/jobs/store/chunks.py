"""The rows of chunks: claim, commit, release; and where the rows of results are."""

import time
from collections.abc import Callable, Sequence

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.jobs.store.tables import CHUNKS, CLAIMED, DONE, JOBS, OWNERS, WAITING, open_to
from app.jobs.store.values import (
    LARGEST_CHUNK,
    RUNNABLE,
    UNFINISHED,
    Claim,
    Rows,
    Span,
    State,
    Stored,
)

LATELY = 64
"""Finished chunks by which the rate of a job is measured."""


class ChunkRows:
    """The table of chunks; `clock` returns seconds since 1970."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    async def claim(self, job: str, owner: str, limit: int = 1) -> list[Claim]:
        """Give the next free chunks of a runnable job to `owner`, at most `limit` of them."""
        free = select(CHUNKS.c.number).where(CHUNKS.c.job == job, CHUNKS.c.state == WAITING)
        # Two hosts that ask PostgreSQL at the same time get different chunks and do not wait.
        # As a common table expression: PostgreSQL may run a subquery several times, with a limit
        # for each.
        first = free.order_by(CHUNKS.c.number).limit(limit).with_for_update(skip_locked=True)
        mine = (CHUNKS.c.job == job) & CHUNKS.c.number.in_(select(first.cte("free").c.number))
        taken = update(CHUNKS).where(mine, CHUNKS.c.state == WAITING)
        taken = taken.values(state=CLAIMED, owner=owner, attempts=CHUNKS.c.attempts + 1)
        runnable = JOBS.c.state.in_(_values(RUNNABLE))
        begun = update(JOBS).where(JOBS.c.id == job, runnable)
        begun = begun.values(
            state=State.RUNNING.value, started=func.coalesce(JOBS.c.started, self._clock())
        )
        # In a statement of its own, after the job's row is locked: the one that waited for the lock
        # would not see the chunks that another process of PostgreSQL has claimed meanwhile.
        allowed = select(JOBS.c.id).where(JOBS.c.id == job, open_to(owner))
        async with self._engine.begin() as connection:
            row = (await connection.execute(begun.returning(JOBS.c.concurrency))).first()
            if row is None:
                return []
            if row.concurrency is not None and await connection.scalar(allowed) is None:
                return []
            rows = [*await connection.execute(taken.returning(CHUNKS))]
        rows.sort(key=lambda row: row.number)
        return [
            Claim(job, row.number, Span(row.first, row.n_items, row.start, row.stop), row.attempts)
            for row in rows
        ]

    async def commit(self, stored: Sequence[Stored], owner: str, retention: float) -> list[Stored]:
        """Add records to the results of their jobs; return those that `owner` had claimed still.

        All are committed at once. A chunk that another process has taken over is left out, so its
        records count once.
        """
        jobs = sorted({each.claim.job for each in stored})  # one order, so that no two wait
        kept: list[Stored] = []
        async with self._engine.begin() as connection:
            for job in jobs:
                mine = [each for each in stored if each.claim.job == job]
                kept += await self._commit(connection, job, mine, owner)
            now = self._clock()
            complete = (JOBS.c.done == JOBS.c.total) & (JOBS.c.state == State.RUNNING.value)
            ended = update(JOBS).where(JOBS.c.id.in_(jobs), complete)
            await connection.execute(
                ended.values(state=State.SUCCEEDED.value, finished=now, expires=now + retention)
            )
        return kept

    async def _commit(
        self, connection: AsyncConnection, job: str, stored: Sequence[Stored], owner: str
    ) -> list[Stored]:
        """Add records to the results of one job; return those that count."""
        # The row of the job is locked first, so that rows of results are numbered one after the
        # other although several hosts commit.
        # One that has ended, because another process found that it cannot go on, changes no more.
        this = update(JOBS).where(JOBS.c.id == job, JOBS.c.state.in_(_values(UNFINISHED)))
        row = await connection.scalar(this.values(done=JOBS.c.done).returning(JOBS.c.done))
        if row is None:
            return []
        kept: list[Stored] = []
        count = 0
        for each in stored:
            mine = (CHUNKS.c.job == job) & (CHUNKS.c.number == each.claim.number)
            done = update(CHUNKS).where(mine, CHUNKS.c.owner == owner, CHUNKS.c.state == CLAIMED)
            place = {"file": each.file, "at": each.at, "length": each.length}
            values = {"state": DONE, "row": row + count, "finished": self._clock(), **place}
            if (await connection.execute(done.values(**values))).rowcount:
                kept.append(each)
                count += each.count
        added = {
            "done": JOBS.c.done + count,
            "failed": JOBS.c.failed + sum(each.failed for each in kept),
            "stored": JOBS.c.stored + sum(each.length for each in kept),
            "problem": None,  # it does not wait any more
        }
        await connection.execute(this.values(**added))
        return kept

    async def release(self, claims: Sequence[Claim], owner: str) -> None:
        """Give chunks back that were not finished; this does not count as an attempt."""
        async with self._engine.begin() as connection:
            for each in claims:
                mine = (CHUNKS.c.job == each.job) & (CHUNKS.c.number == each.number)
                held = update(CHUNKS).where(mine, CHUNKS.c.owner == owner)
                free = {"state": WAITING, "owner": None, "attempts": CHUNKS.c.attempts - 1}
                await connection.execute(held.where(CHUNKS.c.state == CLAIMED).values(**free))

    async def release_all(self, job: str, owner: str) -> int:
        """Give back all chunks of a job that `owner` has; return their number.

        Call it where `owner` works on none of them: a chunk whose claim was made, but never
        answered, would stay claimed for as long as the process lives.
        """
        held = update(CHUNKS).where(CHUNKS.c.job == job, CHUNKS.c.owner == owner)
        free = {"state": WAITING, "owner": None, "attempts": CHUNKS.c.attempts - 1}
        async with self._engine.begin() as connection:
            freed = held.where(CHUNKS.c.state == CLAIMED).values(**free)
            return (await connection.execute(freed)).rowcount

    async def release_abandoned(self) -> int:
        """Free the chunks of owners whose lease has ended; return their number."""
        alive = select(OWNERS.c.id).where(OWNERS.c.until >= self._clock())
        abandoned = update(CHUNKS).where(CHUNKS.c.state == CLAIMED, CHUNKS.c.owner.not_in(alive))
        async with self._engine.begin() as connection:
            return (await connection.execute(abandoned.values(state=WAITING, owner=None))).rowcount

    async def results(self, job: str, offset: int, limit: int) -> list[Rows]:
        """Return at most `limit` runs of rows, in order, from the one that holds row `offset`."""
        near = CHUNKS.c.row > offset - LARGEST_CHUNK  # for the index
        theirs = (CHUNKS.c.job == job) & near & (CHUNKS.c.row > offset - CHUNKS.c.n_items)
        query = select(CHUNKS).where(theirs, CHUNKS.c.state == DONE, CHUNKS.c.n_items > 0)
        async with self._engine.connect() as connection:
            found = await connection.execute(query.order_by(CHUNKS.c.row).limit(limit))
            return [Rows(each.row, each.n_items, each.file, each.at, each.length) for each in found]

    async def rate(self, job: str) -> float | None:
        """Return the images a second of a job by its last chunks; None before there are two."""
        query = select(CHUNKS.c.n_items, CHUNKS.c.finished)
        query = query.where(CHUNKS.c.job == job, CHUNKS.c.state == DONE)
        async with self._engine.connect() as connection:
            last = [*await connection.execute(query.order_by(CHUNKS.c.row.desc()).limit(LATELY))]
        if len(last) < 2:
            return None
        seconds = max(self._clock(), last[0].finished) - last[-1].finished
        return float(sum(row.n_items for row in last[:-1]) / seconds) if seconds > 0 else None


def _values(states: Sequence[State]) -> list[str]:
    return [each.value for each in states]
