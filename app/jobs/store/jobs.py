"""The rows of jobs: add, find, list, cancel, fail, expire, remove."""

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.jobs.store.endings import WAITING as TO_DO
from app.jobs.store.endings import Ending
from app.jobs.store.tables import (
    CHUNKS,
    CLAIMED,
    ENDINGS,
    FINISHED,
    JOBS,
    META,
    RUNNABLE,
    UNFINISHED,
    WAITING,
    Job,
    JobUsage,
    Span,
    State,
    open_to,
)

AT_ONCE = 1000
"""Rows that one statement inserts or names."""


class JobRows:
    """The table of jobs. Clients see their own jobs only; `clock` returns seconds since 1970."""

    def __init__(self, engine: AsyncEngine, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    async def add(
        self,
        job: Job,
        spans: Sequence[Span],
        endings: Sequence[Ending] = (),
        check: Callable[[JobUsage], None] = lambda _usage: None,
    ) -> Job:
        """Add a queued job with its chunks and what is to be done at its end.

        Return it, or the job that has its key already. Raises what `check` raises of the usage with
        this job; the job is not added then.
        """
        row = {name: getattr(job, name) for name in JOBS.columns.keys()}  # noqa: SIM118 (columns)
        row |= {"options": json.dumps(job.options), "problem": None, "state": job.state.value}
        try:
            async with self._engine.begin() as connection:
                # Processes of PostgreSQL take turns at this row; those of SQLite do at any write.
                version = select(META.c.value).where(META.c.name == "version")
                await connection.scalar(version.with_for_update())
                await connection.execute(insert(JOBS), [row])
                check(await self._usage(connection, job.client, None))
                rows = _chunk_rows(job.id, spans)
                while some := list(islice(rows, AT_ONCE)):
                    await connection.execute(insert(CHUNKS), some)
                if endings:
                    await connection.execute(insert(ENDINGS), [asdict(each) for each in endings])
        except IntegrityError:
            if job.key is None or (found := await self.by_key(job.client, job.key)) is None:
                raise
            return found
        return job

    async def usage(self, client: str, key: str | None) -> JobUsage:
        """Return what the jobs of a client, and of all, take now."""
        async with self._engine.connect() as connection:
            return await self._usage(connection, client, key)

    async def _usage(self, connection: AsyncConnection, client: str, key: str | None) -> JobUsage:
        mine = JOBS.c.client == client
        unfinished = JOBS.c.state.in_([each.value for each in UNFINISHED])
        stored = select(func.coalesce(func.sum(JOBS.c.stored), 0))
        query = select(
            select(func.count()).select_from(JOBS).where(mine, unfinished).scalar_subquery(),
            exists().where(mine, JOBS.c.key == (key or "")),  # no key is empty
            stored.scalar_subquery(),
            stored.where(mine).scalar_subquery(),
        )
        jobs, repeated, of_all, of_client = (await connection.execute(query)).one()
        return JobUsage(jobs, bool(repeated), int(of_all), int(of_client))

    async def find(self, id_: str, client: str | None = None) -> Job | None:
        """Return a job, or None where the client has none of this id."""
        if "\0" in id_:  # PostgreSQL takes none
            return None
        mine = JOBS.c.id == id_
        return await self._one(mine if client is None else mine & (JOBS.c.client == client))

    async def by_key(self, client: str, key: str) -> Job | None:
        """Return the job that a client made with an idempotency key."""
        return await self._one((JOBS.c.client == client) & (JOBS.c.key == key))

    async def listed(
        self, client: str, state: State | None, before: str | None, limit: int
    ) -> list[Job]:
        """Return jobs of a client, the newest first, from the one after `before` on."""
        query = select(JOBS).where(JOBS.c.client == client).order_by(JOBS.c.id.desc())
        if state is not None:
            query = query.where(JOBS.c.state == state.value)
        if before is not None:
            query = query.where(JOBS.c.id < before.partition("\0")[0])  # PostgreSQL takes no NUL
        async with self._engine.connect() as connection:
            found = await connection.execute(query.limit(limit))
            return [_job(row) for row in found.mappings()]

    async def stored(self) -> dict[str, int]:
        """Return the bytes that the jobs of each client store."""
        query = select(JOBS.c.client, func.sum(JOBS.c.stored)).group_by(JOBS.c.client)
        async with self._engine.connect() as connection:
            return {client: int(total) for client, total in await connection.execute(query)}

    async def by_state(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        query = select(JOBS.c.state, func.count()).group_by(JOBS.c.state)
        async with self._engine.connect() as connection:
            return {state: count for state, count in await connection.execute(query)}

    async def runnable(self, limit: int, owner: str, without: Collection[str] = ()) -> list[Job]:
        """Return jobs that have chunks without an owner which `owner` may claim: the oldest one of
        each client first, then the second ones, but for those of the clients `without`.
        """
        waiting = exists().where(CHUNKS.c.job == JOBS.c.id, CHUNKS.c.state == WAITING)
        place = func.row_number().over(partition_by=JOBS.c.client, order_by=JOBS.c.id)
        query = select(JOBS).where(_in(RUNNABLE), waiting, open_to(owner))
        query = query.where(JOBS.c.client.not_in([*without]))
        query = query.order_by(place, JOBS.c.id).limit(limit)
        async with self._engine.connect() as connection:
            return [_job(row) for row in (await connection.execute(query)).mappings()]

    async def states(self, ids: Sequence[str]) -> dict[str, State]:
        """Return the states of jobs by id."""
        query = select(JOBS.c.id, JOBS.c.state).where(JOBS.c.id.in_(ids))
        async with self._engine.connect() as connection:
            return {id_: State(state) for id_, state in await connection.execute(query)}

    async def cancel(self, id_: str, retention: float) -> None:
        """Cancel an unfinished job; it is `cancelling` while a chunk of it is in work."""
        mine = JOBS.c.id == id_
        cancelling = update(JOBS).where(mine, _in(RUNNABLE))
        async with self._engine.begin() as connection:
            await connection.execute(cancelling.values(state=State.CANCELLING.value))
        await self.end_cancelled(retention)

    async def end_cancelled(self, retention: float) -> None:
        """End the jobs that are being cancelled and of which no chunk is in work any more."""
        in_work = exists().where(CHUNKS.c.job == JOBS.c.id, CHUNKS.c.state == CLAIMED)
        ended = update(JOBS).where(JOBS.c.state == State.CANCELLING.value, ~in_work)
        await self._end(ended.values(problem=None), State.CANCELLED, retention)

    async def note(self, id_: str, problem: dict[str, Any]) -> None:
        """Show why an unfinished job waits, until it gets on."""
        waits = update(JOBS).where(JOBS.c.id == id_, _in(RUNNABLE))
        async with self._engine.begin() as connection:
            await connection.execute(waits.values(problem=json.dumps(problem)))

    async def fail(self, id_: str, problem: dict[str, Any], retention: float) -> None:
        """End a job that cannot go on."""
        ended = update(JOBS).where(JOBS.c.id == id_, _in(RUNNABLE))
        await self._end(ended.values(problem=json.dumps(problem)), State.FAILED, retention)

    async def expire(self) -> list[str]:
        """Expire jobs whose results were kept long enough; return ids whose files must go.

        They are at most AT_ONCE: a statement takes a limited number of parameters, and after a long
        stop very many jobs may be due.
        """
        due = (JOBS.c.expires < self._clock()) & _in(FINISHED)
        # Two hosts that ask PostgreSQL at the same time get different jobs and do not wait.
        some = select(JOBS.c.id).where(due).limit(AT_ONCE).with_for_update(skip_locked=True)
        which = JOBS.c.id.in_(select(some.cte("due").c.id))
        ended = update(JOBS).where(which, due).values(state=State.EXPIRED.value, stored=0)
        async with self._engine.begin() as connection:
            ids = [*await connection.scalars(ended.returning(JOBS.c.id))]
            await connection.execute(delete(CHUNKS).where(CHUNKS.c.job.in_(ids)))
        return ids

    async def forget(self, before: float) -> None:
        """Remove expired jobs that finished before a moment, but for those with endings to do."""
        old = (JOBS.c.finished < before) & (JOBS.c.state == State.EXPIRED.value)
        old &= ~exists().where(ENDINGS.c.job == JOBS.c.id, ENDINGS.c.state == TO_DO)
        async with self._engine.begin() as connection:
            await connection.execute(delete(JOBS).where(old))

    async def remove(self, id_: str) -> bool:
        """Remove a job that is not in work; return False if it still is."""
        idle = JOBS.c.state.in_([each.value for each in (*FINISHED, State.EXPIRED)])
        async with self._engine.begin() as connection:
            gone = await connection.execute(delete(JOBS).where(JOBS.c.id == id_, idle))
            if gone.rowcount:
                await connection.execute(delete(CHUNKS).where(CHUNKS.c.job == id_))
            return bool(gone.rowcount)

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Return those of the ids that are jobs with files."""
        found: set[str] = set()
        kept = select(JOBS.c.id).where(JOBS.c.state != State.EXPIRED.value)
        async with self._engine.connect() as connection:
            for first in range(0, len(ids), AT_ONCE):
                some = kept.where(JOBS.c.id.in_(ids[first : first + AT_ONCE]))
                found.update(await connection.scalars(some))
        return found

    async def _one(self, which: ColumnElement[bool]) -> Job | None:
        async with self._engine.connect() as connection:
            row = (await connection.execute(select(JOBS).where(which))).mappings().first()
            return None if row is None else _job(row)

    async def _end(self, ended: Any, state: State, retention: float) -> None:
        now = self._clock()
        values = {"state": state.value, "finished": now, "expires": now + retention}
        async with self._engine.begin() as connection:
            await connection.execute(ended.values(**values))


def _in(states: Sequence[State]) -> ColumnElement[bool]:
    return JOBS.c.state.in_([each.value for each in states])


def _job(row: RowMapping) -> Job:
    """Return the value of a row."""
    problem = row["problem"] and json.loads(row["problem"])
    texts = {"options": json.loads(row["options"]), "problem": problem}
    return Job(**{**row, **texts, "state": State(row["state"])})


def _chunk_rows(job: str, spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    for number, each in enumerate(spans):
        place = {"first": each.first, "n_items": each.count, "start": each.start, "stop": each.stop}
        yield {"job": job, "number": number, "state": WAITING, "attempts": 0, **place}
