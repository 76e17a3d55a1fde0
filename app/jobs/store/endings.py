"""The rows of endings: what is left to do for a job that has ended, and when it is tried next."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Update,
    and_,
    case,
    delete,
    exists,
    false,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.tables import ENDINGS, JOBS, OWNERS
from app.jobs.store.values import FINISHED, State

DESTINATION, WEBHOOK = "destination", "webhook"
"""The kinds of endings: results go to storage first, then a webhook is called."""

WAITING, DONE, FAILED = "waiting", "done", "failed"
"""The states of an ending; the last two never change."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One thing to do: `attempts` were begun, `body` is the message that the first one sent, and
    `owner` is the process that works on it.
    """

    job: str
    kind: str
    target: str
    state: str
    attempts: int
    due: float
    body: str | None
    reason: str | None
    owner: str | None = None


AT_ONCE = {DESTINATION: 8, WEBHOOK: 16}
"""Endings of each kind that one process works on at a time: files of gigabytes delay no webhook."""

OF_ONE = {DESTINATION: 2, WEBHOOK: 4}
"""Those of one client among them: a receiver that gives no answer holds each of its messages for 20
seconds, and only messages of the same client wait for it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """An ending that a process works on, and the client whose job has ended."""

    ending: Ending
    client: str


class EndingRows:
    """The table of endings, of which `owner` takes some; `clock` returns seconds since 1970."""

    def __init__(
        self, engine: AsyncEngine, owner: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._clock = clock

    async def of(self, jobs: Sequence[str]) -> dict[str, dict[str, Ending]]:
        """Return the endings of jobs by their kind, for each of the ids."""
        endings: dict[str, dict[str, Ending]] = {job: {} for job in jobs}
        async with self._engine.connect() as connection:
            found = await connection.execute(select(ENDINGS).where(ENDINGS.c.job.in_(jobs)))
            for row in found.mappings():
                endings[row["job"]][row["kind"]] = Ending(**row)
        return endings

    async def claim(self, held: Collection[Claimed] = ()) -> Claimed | None:
        """Take the next ending beside those that this process works on; None if there is none.

        That of the client with the fewest endings in work comes first, and of its endings the one
        that has been due for the longest time; AT_ONCE and OF_ONE limit those in work.

        If this process dies, its lease ends, and the ending is due again. An ending that this
        process has taken without knowing it, because the answer was lost, is due again too. So
        each is done at least once.
        """
        found = await self._next(held)
        if found is None:
            return None
        row = {**found._mapping}
        client = row.pop("client")
        ending = Ending(**row)
        # Each claim is another attempt, so of two processes that found this row one takes it.
        same = ENDINGS.c.attempts == ending.attempts
        mine = self._one(ending).where(same)
        more = {"owner": self._owner, "attempts": ending.attempts + 1}
        async with self._engine.begin() as connection:
            taken = (await connection.execute(mine.values(**more))).rowcount
        return Claimed(ending, client) if taken else await self.claim(held)

    async def _next(self, held: Collection[Claimed]) -> Row[Any] | None:
        """Return the row that is to be claimed, with its client."""
        now = self._clock()
        other = ENDINGS.alias()
        before = exists().where(
            other.c.job == ENDINGS.c.job, other.c.kind == DESTINATION, other.c.state == WAITING
        )
        first = (ENDINGS.c.kind == DESTINATION) | ~before
        alive = select(OWNERS.c.id).where(OWNERS.c.until >= now)
        lost = and_(ENDINGS.c.owner == self._owner, *(~_is(each.ending) for each in held))
        free = ENDINGS.c.owner.is_(None) | ENDINGS.c.owner.not_in(alive) | lost
        due = (ENDINGS.c.state == WAITING) & (ENDINGS.c.due <= now) & free & first
        # Webhooks are tried for three days, and results may be kept for less.
        ended = JOBS.c.state.in_([each.value for each in (*FINISHED, State.EXPIRED)])
        query = select(ENDINGS, JOBS.c.client).join(JOBS, JOBS.c.id == ENDINGS.c.job)
        query = query.where(due, ended, _has_room(held)).order_by(*_order(held))
        async with self._engine.connect() as connection:
            return (await connection.execute(query.limit(1))).first()

    async def keep(self, ending: Ending, body: str) -> None:
        """Keep the message of an ending: it is the same at every try."""
        async with self._engine.begin() as connection:
            await connection.execute(self._one(ending).values(body=body))

    async def finish(self, ending: Ending, state: str, reason: str) -> None:
        """End an ending for good."""
        async with self._engine.begin() as connection:
            await connection.execute(
                self._one(ending).values(state=state, reason=reason, owner=None)
            )

    async def postpone(
        self, ending: Ending, seconds: float, reason: str, *, counts: bool = True
    ) -> None:
        """Try an ending again after some seconds; if it `counts`, this was one of its attempts.

        Do nothing where another process has taken it meanwhile.
        """
        mine = self._one(ending).where(ENDINGS.c.attempts == ending.attempts + 1)
        values = {"due": self._clock() + seconds, "reason": reason, "owner": None}
        async with self._engine.begin() as connection:
            await connection.execute(mine.values(attempts=ending.attempts + counts, **values))

    async def forget(self) -> None:
        """Remove the endings of jobs that are gone."""
        gone = ~exists().where(JOBS.c.id == ENDINGS.c.job)
        async with self._engine.begin() as connection:
            await connection.execute(delete(ENDINGS).where(gone))

    def _one(self, ending: Ending) -> Update:
        """Return a change of an ending that is not done: a process that stood still comes late."""
        return update(ENDINGS).where(_is(ending), ENDINGS.c.state == WAITING)


def _has_room(held: Collection[Claimed]) -> ColumnElement[bool]:
    """Return whether an ending of this kind and client may be begun beside those in work."""
    kinds = list[ColumnElement[bool]]()
    for kind, most in AT_ONCE.items():
        clients = Counter(each.client for each in held if each.ending.kind == kind)
        if clients.total() < most:
            full = [client for client, n in clients.items() if n >= OF_ONE[kind]]
            kinds.append((ENDINGS.c.kind == kind) & JOBS.c.client.not_in(full))
    return or_(false(), *kinds)


def _order(held: Collection[Claimed]) -> list[ColumnElement[Any]]:
    """Return the order of endings: by the number of those of their client in work, then by time."""
    counts = Counter(each.client for each in held)
    in_work = [case(dict(counts), value=JOBS.c.client, else_=0)] if counts else []
    return [*in_work, ENDINGS.c.due]


def _is(ending: Ending) -> ColumnElement[bool]:
    return (ENDINGS.c.job == ending.job) & (ENDINGS.c.kind == ending.kind)
