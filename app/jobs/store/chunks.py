"""The rows of chunks: claim, commit, release; and where the rows of results are."""

import time
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.tables import (
    CHUNKS,
    CLAIMED,
    DONE,
    JOBS,
    LARGEST_CHUNK,
    OWNERS,
    RUNNABLE,
    UNFINISHED,
    WAITING,
    Claim,
    ResultRun,
    Span,
    State,
    Stored,
    open_to,
)

LATELY = 64
"""Finished chunks by which the rate of a job is measured."""


class ChunkRows:
    """The table of chunks; `clock` returns seconds since 1970."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    async def claim(self, job: str, owner: str) -> Claim | None:
        """Give the next free chunk of a runnable job to `owner`; return None if there is none."""
        free = select(CHUNKS.c.number).where(CHUNKS.c.job == job, CHUNKS.c.state == WAITING)
        # Two hosts that ask PostgreSQL at the same time get different chunks and do not wait.
        # As a common table expression: PostgreSQL may run a subquery several times, with a limit
        # for each.
        first = free.order_by(CHUNKS.c.number).limit(1).with_for_update(skip_locked=True)
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
            found = (await connection.execute(begun.returning(JOBS.c.concurrency))).first()
            if found is None:
                return None
            if found.concurrency is not None and await connection.scalar(allowed) is None:
                return None
            row = (await connection.execute(taken.returning(CHUNKS))).first()
        if row is None:
            return None
        span = Span(row.first, row.n_items, row.start, row.stop)
        return Claim(job, row.number, span, row.attempts)

    async def commit(self, stored: Stored, owner: str, retention: float) -> bool:
        """Add the records of a chunk to the results of its job, which may end with them.

        Return False if `owner` has lost the chunk to another process: its records count once.
        """
        job, chunk = stored.claim.job, stored.claim.number
        # The row of the job is locked first, so that rows of results are numbered one after the
        # other although several hosts commit. A job that has ended, because another process found
        # that it cannot go on, changes no more.
        this = update(JOBS).where(JOBS.c.id == job, JOBS.c.state.in_(_values(UNFINISHED)))
        mine = (CHUNKS.c.job == job) & (CHUNKS.c.number == chunk) & (CHUNKS.c.owner == owner)
        place = {"file": stored.file, "at": stored.at, "length": stored.length}
        now = self._clock()
        added = {
            "done": JOBS.c.done + stored.count,
            "failed": JOBS.c.failed + stored.failed,
            "stored": JOBS.c.stored + stored.length,
            "problem": None,  # it does not wait any more
        }
        complete = (JOBS.c.done == JOBS.c.total) & (JOBS.c.state == State.RUNNING.value)
        ended = {"state": State.SUCCEEDED.value, "finished": now, "expires": now + retention}
        async with self._engine.begin() as connection:
            row = await connection.scalar(this.values(done=JOBS.c.done).returning(JOBS.c.done))
            if row is None:
                return False
            done = update(CHUNKS).where(mine, CHUNKS.c.state == CLAIMED)
            done = done.values(state=DONE, row=row, finished=now, **place)
            if not (await connection.execute(done)).rowcount:
                return False
            await connection.execute(this.values(**added))
            await connection.execute(update(JOBS).where(JOBS.c.id == job, complete).values(**ended))
        return True

    async def release(self, jobs: Collection[str], owner: str) -> None:
        """Give back the chunks of jobs that `owner` has claimed and not finished.

        This does not count as an attempt. Call it where `owner` works on none of them.
        """
        held = update(CHUNKS).where(CHUNKS.c.job.in_(jobs), CHUNKS.c.owner == owner)
        free = {"state": WAITING, "owner": None, "attempts": CHUNKS.c.attempts - 1}
        async with self._engine.begin() as connection:
            await connection.execute(held.where(CHUNKS.c.state == CLAIMED).values(**free))

    async def release_abandoned(self) -> int:
        """Free the chunks of owners whose lease has ended; return their number."""
        alive = select(OWNERS.c.id).where(OWNERS.c.until >= self._clock())
        abandoned = update(CHUNKS).where(CHUNKS.c.state == CLAIMED, CHUNKS.c.owner.not_in(alive))
        async with self._engine.begin() as connection:
            return (await connection.execute(abandoned.values(state=WAITING, owner=None))).rowcount

    async def results(self, job: str, offset: int, limit: int) -> list[ResultRun]:
        """Return at most `limit` runs of rows, in order, from the one that holds row `offset`."""
        near = CHUNKS.c.row > offset - LARGEST_CHUNK  # for the index
        theirs = (CHUNKS.c.job == job) & near & (CHUNKS.c.row > offset - CHUNKS.c.n_items)
        query = select(CHUNKS).where(theirs, CHUNKS.c.state == DONE, CHUNKS.c.n_items > 0)
        async with self._engine.connect() as connection:
            found = await connection.execute(query.order_by(CHUNKS.c.row).limit(limit))
            return [
                ResultRun(each.row, each.n_items, each.file, each.at, each.length) for each in found
            ]

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
