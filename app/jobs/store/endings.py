"""The rows of endings: what is left to do for a job that has ended, and when it is tried next."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Update, and_, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from app.jobs.store.tables import ENDINGS, FINISHED, JOBS, OWNERS, State

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


OF_ONE = 8
"""Endings of one client that are in work at a time: a receiver that gives no answer holds each of
its messages for 20 seconds, and only messages of the same client wait for it."""


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

    async def claim(self, limit: int, held: Collection[Ending] = ()) -> list[Ending]:
        """Take at most `limit` endings that are due, beside those `held` by this process.

        At most OF_ONE endings of a client are in work; the first ending of each client comes before
        the second ending of any client. If this
        process dies, its lease ends, and the endings are due again. An ending that this process has
        taken without knowing it, because the answer was lost, is due again too. So each is done at
        least once.
        """
        now = self._clock()
        other = ENDINGS.alias()
        before = exists().where(
            other.c.job == ENDINGS.c.job, other.c.kind == DESTINATION, other.c.state == WAITING
        )
        first = (ENDINGS.c.kind == DESTINATION) | ~before
        alive = select(OWNERS.c.id).where(OWNERS.c.until >= now)
        lost = and_(ENDINGS.c.owner == self._owner, *(~_is(each) for each in held))
        free = ENDINGS.c.owner.is_(None) | ENDINGS.c.owner.not_in(alive) | lost
        due = (ENDINGS.c.state == WAITING) & (ENDINGS.c.due <= now) & first
        # Webhooks are tried for three days, and results may be kept for less.
        ended = JOBS.c.state.in_([each.value for each in (*FINISHED, State.EXPIRED)])
        order = ENDINGS.c.owner.is_(None), ENDINGS.c.due  # first what is in work
        place = func.row_number().over(partition_by=JOBS.c.client, order_by=order)
        columns = (*ENDINGS.c, place.label("place"), free.label("free"))
        queue = select(*columns).join(JOBS, JOBS.c.id == ENDINGS.c.job).where(due, ended).subquery()
        query = select(*(queue.c[each.name] for each in ENDINGS.c))
        query = query.where(queue.c.place <= OF_ONE, queue.c.free)
        query = query.order_by(queue.c.place, queue.c.due).limit(limit)
        claimed = list[Ending]()
        async with self._engine.begin() as connection:
            for row in [*(await connection.execute(query)).mappings()]:
                ending = Ending(**row)
                # Each claim is another attempt, so of two processes that found this row one takes
                # it.
                mine = self._one(ending).where(ENDINGS.c.attempts == ending.attempts)
                more = {"owner": self._owner, "attempts": ending.attempts + 1}
                if (await connection.execute(mine.values(**more))).rowcount:
                    claimed.append(ending)
        return claimed

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


def _is(ending: Ending) -> ColumnElement[bool]:
    return (ENDINGS.c.job == ending.job) & (ENDINGS.c.kind == ending.kind)
