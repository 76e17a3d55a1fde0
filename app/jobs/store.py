"""The state of jobs in SQLite or PostgreSQL: their tables, and transactions on them.

A job is divided into chunks, runs of consecutive lines of its manifest. A chunk is worked on by a
single owner (a process) with a lease; when the lease ends, the chunk is free again. A finished
chunk names the bytes of a results file that hold its records. Nothing else in that file counts, so
no item is in the results twice, and none is missing when all chunks are done.

Import this file only where jobs are enabled: SQLAlchemy takes time.
"""

import asyncio
import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Concatenate, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Enum,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    Update,
    create_engine,
    delete,
    event,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, aliased, mapped_column

from app.http.problems import problem
from app.jobs.files import DATABASE, LOCK, private, to_its_end
from models.domain.errors import NotFound, TooManyFailures, Unavailable
from models.threads import giving_way

log = logging.getLogger("darkroom.jobs")

T = TypeVar("T")
S = TypeVar("S", bound="JobStore")
P = ParamSpec("P")

VERSION = 9
"""The version of these tables; it grows with every change of them."""

WAITING, CLAIMED, COMMITTED = 0, 1, 2
"""The states of a chunk."""

DESTINATION, WEBHOOK = "destination", "webhook"
"""The kinds of endings: results go to storage first, then a webhook is called."""

TO_DO, DONE, FAILED = "waiting", "done", "failed"
"""The states of an ending; the last two never change."""

SMALLEST_CHUNK, LARGEST_CHUNK = 32, 256
"""Items of a chunk. A process that is killed has worked in vain on the chunks that it had begun;
each chunk costs two small transactions."""


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


UNFINISHED = (State.QUEUED, State.RUNNING, State.CANCELLING)
RUNNABLE = (State.QUEUED, State.RUNNING)
FINISHED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
"""States of jobs whose results are kept until they expire."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of lines of a manifest: `n_items` items from item `first` on, at bytes `start:stop`."""

    first: int
    n_items: int
    start: int
    stop: int


class JsonText(TypeDecorator[Any]):
    """Values as JSON in a column of text."""

    impl, cache_ok = Text, True

    def process_bind_param(self, value: Any, _dialect: Dialect) -> str | None:
        """Return the text of a value."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, _dialect: Dialect) -> Any:
        """Return the value of a text."""
        return value and json.loads(value)


class Row(MappedAsDataclass, DeclarativeBase):
    """Row of a table, as a dataclass. Times are seconds since 1970."""

    type_annotation_map: ClassVar[Mapping[Any, Any]] = {
        int: BigInteger,
        float: Double,
        dict[str, Any]: JsonText,
        State: Enum(State, native_enum=False, length=16, values_callable=list),
    }


META = Table(
    "darkroom_meta",
    Row.metadata,
    Column("name", String(32), primary_key=True),
    Column("value", Integer, nullable=False),
)


class Job(Row):
    """A job; `stored` are the bytes of its files.

    `destination` is the storage address to which its images and results go, beside the data folder.
    At most `concurrency` of its images are in work at a time; None: as many as the server likes.
    `model` is the network with the weights that worked on its images last.
    The job fails once more than `max_failures` of its images have failed; None: it never does.
    """

    __tablename__ = "darkroom_jobs"
    __table_args__ = (
        UniqueConstraint("client", "key", name="darkroom_jobs_key"),
        Index("darkroom_jobs_client", "client", "id"),
        Index("darkroom_jobs_state", "state", "expires"),
        Index("darkroom_jobs_stored", "client", "stored"),  # sums of a body read it alone
        Index("darkroom_jobs_unfinished", "client", "state"),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # they are ordered by time
    client: Mapped[str] = mapped_column(String(255))
    state: Mapped[State]
    operation: Mapped[str] = mapped_column(String(16))
    options: Mapped[dict[str, Any]]
    total: Mapped[int]
    done: Mapped[int]
    failed: Mapped[int]
    stored: Mapped[int]
    created: Mapped[float]
    started: Mapped[float | None] = mapped_column(default=None)
    finished: Mapped[float | None] = mapped_column(default=None)
    expires: Mapped[float | None] = mapped_column(default=None)
    key: Mapped[str | None] = mapped_column(String(255), default=None)
    digest: Mapped[str] = mapped_column(String(64), default="")
    model: Mapped[dict[str, Any] | None] = mapped_column(default=None)
    problem: Mapped[dict[str, Any] | None] = mapped_column(default=None)
    destination: Mapped[str | None] = mapped_column(Text, default=None)
    concurrency: Mapped[int | None] = mapped_column(Integer, default=None)
    max_failures: Mapped[int | None] = mapped_column(Integer, default=None)


class Chunk(Row):
    """Items of a job that an owner works on together: `n_items` lines of the manifest from number
    `first` on, at bytes `start:stop`.

    Once it is committed, its records are rows of the results from number `row` on, at `length`
    bytes from `at` on of a `file`. Before that these are None.
    """

    __tablename__ = "darkroom_chunks"
    __table_args__ = (
        Index("darkroom_chunks_state", "job", "state", "number"),
        Index("darkroom_chunks_row", "job", "row"),
        Index("darkroom_chunks_owner", "state", "owner"),
    )
    job: Mapped[str] = mapped_column(String(32), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    first: Mapped[int]
    n_items: Mapped[int] = mapped_column(Integer)
    start: Mapped[int]
    stop: Mapped[int]
    state: Mapped[int] = mapped_column(SmallInteger, default=WAITING)
    owner: Mapped[str | None] = mapped_column(String(64), default=None)
    until: Mapped[float | None] = mapped_column(default=None)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    file: Mapped[str] = mapped_column(String(80), nullable=True, default=None)
    at: Mapped[int] = mapped_column(nullable=True, default=None)
    length: Mapped[int] = mapped_column(nullable=True, default=None)
    row: Mapped[int] = mapped_column(nullable=True, default=None)
    finished: Mapped[float | None] = mapped_column(default=None)

    @property
    def span(self) -> Span:
        """Return the lines of the manifest."""
        return Span(self.first, self.n_items, self.start, self.stop)


class ResultRun(NamedTuple):
    """Where a committed chunk is. A reader keeps all of a job in memory: each takes 300 bytes, a
    Chunk 1.9 kB.
    """

    row: int
    n_items: int
    file: str
    at: int
    length: int


class Ending(Row):
    """A task at the end of a job: `attempts` were begun, and the next try is `due`."""

    __tablename__ = "darkroom_endings"
    __table_args__ = (Index("darkroom_endings_due", "state", "due"),)
    job: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    target: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16), default=TO_DO)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    due: Mapped[float] = mapped_column(default=0.0)
    reason: Mapped[str | None] = mapped_column(Text, default=None)


BUSY = 30.0
"""Seconds to wait for another process that writes to SQLite, or for a connection of the pool."""

CONNECTIONS = 4
"""Connections of one process, each used by a thread of its own."""

LEASE, HOLD = 10.0, 30.0
"""Seconds after the last sign of life of a process until others take its chunks over, and its
endings of jobs. A try of a webhook takes 20 seconds at most."""

AT_ONCE = 100
"""Rows that one statement inserts or names: a statement takes a limited number of parameters."""

JOBS_OF_ONE = 4
"""Jobs of one client that a process works on at a time."""

DATABASE_PAUSE = 5.0
"""Seconds after which a client may ask again whose request the database did not answer."""

SETUP = {
    # Readers and one writer at a time, every commit synced.
    "sqlite": ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA temp_store=MEMORY"),
    # A host that loses its power inside of a transaction would else keep its locks for two hours.
    "postgresql": (
        f"SET lock_timeout = {int(BUSY * 1000)}",
        f"SET idle_in_transaction_session_timeout = {int(BUSY * 1000)}",
    ),
}
"""What a new connection is told first."""


class DatabaseFailed(Unavailable):
    """The database of jobs does not answer."""


@contextmanager
def surviving(what: str) -> Iterator[None]:
    """Log an error of work that is done again soon: neither the database nor a fault ends it."""
    try:
        yield
    except (DatabaseFailed, OSError) as error:
        log.warning("%s failed; it is tried again: %s", what, error)
    except Exception as error:
        log.error("%s failed", what, exc_info=error)


class Database:
    """The tables of jobs in SQLite, or in PostgreSQL where several hosts share them.

    Without a URL the database is a file in `folder`. The tables are made where they are missing.
    The text of ValueError states the fault. It blocks.
    """

    def __init__(self, url: str | None, folder: Path) -> None:
        chosen = make_url(url) if url else make_url(f"sqlite:///{folder / DATABASE}")
        backend = chosen.get_backend_name()
        given: dict[str, Any] = {"tcp_user_timeout": int(BUSY * 1000)}
        if backend == "sqlite":
            # BEGIN IMMEDIATE: a transaction that reads first and then waits for a writer fails.
            given = {"isolation_level": "IMMEDIATE", "timeout": BUSY, "check_same_thread": False}
        pool = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_timeout": BUSY}
        ping = backend == "postgresql"
        try:
            self._engine = create_engine(chosen, connect_args=given, pool_pre_ping=ping, **pool)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"DARKROOM_JOBS_DATABASE needs the package {error.name}; install the extra "
                "`postgres`"
            ) from None

        @event.listens_for(self._engine, "connect")
        def _set_up(connection: Any, _record: object) -> None:
            cursor = connection.cursor()
            for each in SETUP[backend]:
                cursor.execute(each)
            cursor.close()
            connection.commit()

        self._threads = ThreadPoolExecutor(CONNECTIONS, "database of jobs")
        try:
            with open(folder / LOCK, "ab", opener=private) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # one process at a time makes tables
                if not url:  # before SQLite makes it readable for others; its other files follow it
                    os.close(private(folder / DATABASE, os.O_RDWR | os.O_CREAT))
                with self._engine.begin() as connection:
                    _create(connection)
        except (SQLAlchemyError, OSError) as error:
            self.close()
            shown = chosen.render_as_string(hide_password=True)
            reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
            raise ValueError(f"the database of jobs at {shown} cannot be used: {reason}") from None
        except BaseException:
            self.close()
            raise

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction on a thread; raises DatabaseFailed.

        A caller that is cancelled waits for the end of the transaction: no transaction stays open
        and keeps SQLite locked, and claimed chunks can be given back.
        """
        loop = asyncio.get_running_loop()
        return await to_its_end(loop.run_in_executor(self._threads, self._transact, work))

    def _transact(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine.begin() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            log.warning("the database of jobs does not answer: %s", error)
            text = "the database of jobs does not answer; try again later"
            raise DatabaseFailed(text, retry_after=DATABASE_PAUSE) from error

    def close(self) -> None:
        """Close all connections, once their transactions have ended."""
        self._threads.shutdown()
        self._engine.dispose()


def _create(connection: Connection) -> None:
    """Create the tables where they are missing; raises ValueError for another version of them."""
    Row.metadata.create_all(connection, tables=[META])
    found = connection.scalar(select(META.c.value).where(META.c.name == "version"))
    if found is not None and found != VERSION:
        age = "newer" if found > VERSION else "older"
        raise ValueError(
            f"the database of jobs was made by {age} software (version {found}, this one uses "
            f"{VERSION}); use that release, or another DARKROOM_DATA_FOLDER"
        )
    Row.metadata.create_all(connection)
    if found is None:
        connection.execute(insert(META).values(name="version", value=VERSION))


def transaction(
    work: Callable[Concatenate[S, Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a method: it runs as a transaction, whose connection it is given."""

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.run(lambda connection: work(self, connection, *args, **kwargs))

    return run


class JobStore:
    """The jobs of all clients, as a process sees them, which is an owner of chunks.

    The results of a finished job are kept for `retention` seconds; `clock` returns seconds since
    1970.
    """

    def __init__(
        self, database: Database, retention: float, clock: Callable[[], float] = time.time
    ) -> None:
        self.database = database
        self.owner = secrets.token_hex(16)
        """A name of this process that no other process ever has."""
        self._retention = retention
        self._clock = clock

    # Jobs.

    @transaction
    def add(
        self,
        connection: Connection,
        job: Job,
        spans: Sequence[Span],
        endings: Sequence[Ending] = (),
        check: Callable[[int, Mapping[str, int]], None] = lambda _unfinished, _stored: None,
    ) -> Job:
        """Add a queued job with its chunks and the tasks at its end.

        Return it, or the job that has its key already. Raises the error that `check` raises for the
        unfinished jobs of this client and the bytes that the jobs of each client store, with this
        job; the job is not added then.
        """
        # Processes take turns at this row.
        version = update(META).where(META.c.name == "version")
        connection.execute(version.values(value=META.c.value))
        if job.key is not None:
            same = (Job.client == job.client) & (Job.key == job.key)
            if (found := _one_job(connection, same)) is not None:
                return found
        connection.execute(insert(Job), [asdict(job)])
        unfinished = select(func.count()).where(Job.client == job.client, Job.state.in_(UNFINISHED))
        check(connection.scalar(unfinished) or 0, _stored(connection))
        # No object for each row: other processes wait for the end of this transaction.
        row = asdict(Chunk(job.id, 0, 0, 0, 0, 0))
        for begin in giving_way(range(0, len(spans), AT_ONCE)):
            some = enumerate(spans[begin : begin + AT_ONCE], begin)
            rows = [{**row, "number": number, **asdict(each)} for number, each in some]
            connection.execute(insert(Chunk), rows)
        if endings:
            connection.execute(insert(Ending), [asdict(each) for each in endings])
        return job

    @transaction
    def find(self, connection: Connection, id_: str, client: str | None = None) -> Job | None:
        """Return a job, or None where the client has none of this id."""
        if "\0" in id_:  # PostgreSQL takes none
            return None
        mine = Job.id == id_
        return _one_job(connection, mine if client is None else mine & (Job.client == client))

    async def of_client(self, id_: str, client: str) -> Job:
        """Return a job of a client, expired even before a sweep finds it; raises NotFound."""
        job = await self.find(id_, client)
        if job is None:
            raise NotFound(f"there is no job {id_[:64]!r} here; GET /jobs lists yours")
        due = job.state in FINISHED and job.expires is not None and job.expires < self._clock()
        return replace(job, state=State.EXPIRED) if due else job

    @transaction
    def listed(
        self, connection: Connection, client: str, state: str | None, before: str | None, n: int
    ) -> list[Job]:
        """Return `n` jobs of a client, the newest first, from the job after `before` on."""
        query = select(Job).where(Job.client == client).order_by(Job.id.desc())
        if state is not None:
            query = query.where(Job.state == state)
        if before is not None:
            query = query.where(Job.id < before.partition("\0")[0])  # PostgreSQL takes no NUL
        return [Job(**row) for row in connection.execute(query.limit(n)).mappings()]

    @transaction
    def stored(self, connection: Connection) -> dict[str, int]:
        """Return the bytes that the jobs of each client store."""
        return _stored(connection)

    @transaction
    def by_state(self, connection: Connection) -> dict[str, int]:
        """Return the number of jobs in each state."""
        query = select(Job.state, func.count()).group_by(Job.state)
        return {state: count for state, count in connection.execute(query)}

    @transaction
    def runnable(
        self,
        connection: Connection,
        limit: int,
        clients: Collection[str] = (),
        jobs: Collection[str] = (),
    ) -> list[Job]:
        """Return jobs that have free chunks which this process may claim, but for some jobs and
        some clients: the oldest job of each client first, then the second jobs, up to
        JOBS_OF_ONE. Among equals chance decides.
        """
        waiting = exists().where(Chunk.job == Job.id, Chunk.state == WAITING)
        place = func.row_number().over(partition_by=Job.client, order_by=Job.id)
        known = select(Job, place.label("place")).where(
            Job.state.in_(RUNNABLE), waiting, self._open()
        )
        known = known.where(Job.client.not_in([*clients]), Job.id.not_in([*jobs]))
        queue = known.subquery()
        query = select(*(queue.c[each.name] for each in Job.__table__.c)).limit(limit)
        query = query.where(queue.c.place <= JOBS_OF_ONE).order_by(queue.c.place, func.random())
        return [Job(**row) for row in connection.execute(query).mappings()]

    def _open(self) -> ColumnElement[bool]:
        """Return whether this process may claim chunks of a job: of a job with a limit of its own
        only if no second owner has a chunk. So a single process at a time counts its images.
        """
        other = (Chunk.state == CLAIMED) & (Chunk.owner != self.owner)
        return Job.concurrency.is_(None) | ~exists().where(Chunk.job == Job.id, other)

    @transaction
    def states(self, connection: Connection, ids: Sequence[str]) -> dict[str, State]:
        """Return the states of jobs by id."""
        query = select(Job.id, Job.state).where(Job.id.in_(ids))
        return {id_: state for id_, state in connection.execute(query)}

    @transaction
    def cancel(self, connection: Connection, id_: str) -> None:
        """Cancel an unfinished job; it is `cancelling` while a chunk of it is in work."""
        cancelling = update(Job).where(Job.id == id_, Job.state.in_(RUNNABLE))
        connection.execute(cancelling.values(state=State.CANCELLING))
        self._end_cancelled(connection)

    def _end_cancelled(self, connection: Connection) -> None:
        """End the jobs that are being cancelled and of which no chunk is in work any more."""
        in_work = exists().where(Chunk.job == Job.id, Chunk.state == CLAIMED)
        ended = update(Job).where(Job.state == State.CANCELLING, ~in_work)
        connection.execute(ended.values(self._ended(State.CANCELLED, None)))

    @transaction
    def note(self, connection: Connection, id_: str, /, **noted: Mapping[str, Any]) -> None:
        """Note the `model` of an unfinished job, its network with weights from now on, or the
        `problem` for which it waits, until it gets on.
        """
        this = update(Job).where(Job.id == id_, Job.state.in_(RUNNABLE))
        connection.execute(this.values(**noted))

    @transaction
    def fail(self, connection: Connection, id_: str, shown: dict[str, Any]) -> None:
        """End a job that cannot go on."""
        ended = update(Job).where(Job.id == id_, Job.state.in_(RUNNABLE))
        connection.execute(ended.values(self._ended(State.FAILED, shown)))

    def _ended(self, state: State, shown: dict[str, Any] | None) -> dict[str, Any]:
        """Return the columns of a job that ends now."""
        now = self._clock()
        expires = now + self._retention
        return {"state": state, "finished": now, "expires": expires, "problem": shown}

    @transaction
    def expire(self, connection: Connection) -> list[str]:
        """Expire at most AT_ONCE jobs whose results were kept long enough; return the ids, whose
        files must go.
        """
        due = (Job.expires < self._clock()) & Job.state.in_(FINISHED)
        # Two hosts that ask PostgreSQL at the same time get different jobs and do not wait.
        some = select(Job.id).where(due).limit(AT_ONCE).with_for_update(skip_locked=True)
        which = Job.id.in_(select(some.cte("due").c.id))
        ended = update(Job).where(which, due).values(state=State.EXPIRED, stored=0)
        ids = [*connection.scalars(ended.returning(Job.id))]
        connection.execute(delete(Chunk).where(Chunk.job.in_(ids)))
        return ids

    @transaction
    def forget(self, connection: Connection) -> None:
        """Remove jobs that expired long ago, unless something is to be done for them, and endings
        of jobs that are gone.
        """
        before = self._clock() - 2 * self._retention
        old = (Job.finished < before) & (Job.state == State.EXPIRED)
        old &= ~exists().where(Ending.job == Job.id, Ending.state == TO_DO)
        connection.execute(delete(Job).where(old))
        connection.execute(delete(Ending).where(~exists().where(Job.id == Ending.job)))

    @transaction
    def remove(self, connection: Connection, id_: str) -> bool:
        """Remove a job that is not in work; return False if it still is."""
        idle = (Job.id == id_) & Job.state.in_((*FINISHED, State.EXPIRED))
        gone = bool(connection.execute(delete(Job).where(idle)).rowcount)
        if gone:
            connection.execute(delete(Chunk).where(Chunk.job == id_))
        return gone

    @transaction
    def kept(self, connection: Connection) -> set[str]:
        """Return the ids of the jobs that have files."""
        query = select(Job.id).where(Job.state != State.EXPIRED)
        return {*connection.scalars(query)}

    # Chunks, and where the rows of results are.

    @transaction
    def claim(self, connection: Connection, job: str) -> Chunk | None:
        """Take the next free chunk of a runnable job; return None if there is none."""
        free = select(Chunk.number).where(Chunk.job == job, Chunk.state == WAITING)
        # Two hosts that ask PostgreSQL at the same time get different chunks and do not wait.
        # As a common table expression: PostgreSQL may run a subquery several times, with a limit
        # for each.
        first = free.order_by(Chunk.number).limit(1).with_for_update(skip_locked=True)
        mine = (Chunk.job == job) & Chunk.number.in_(select(first.cte("free").c.number))
        taken = update(Chunk).where(mine, Chunk.state == WAITING)
        taken = taken.values(
            state=CLAIMED,
            owner=self.owner,
            until=self._clock() + LEASE,
            attempts=Chunk.attempts + 1,
        )
        started = func.coalesce(Job.started, self._clock())
        begun = update(Job).where(Job.id == job, Job.state.in_(RUNNABLE))
        begun = begun.values(state=State.RUNNING, started=started)
        # In a statement of its own, after the job's row is locked: the one that waited for the lock
        # would not see the chunks that another process of PostgreSQL has claimed meanwhile.
        allowed = select(Job.id).where(Job.id == job, self._open())
        if not connection.execute(begun).rowcount or connection.scalar(allowed) is None:
            return None
        row = connection.execute(taken.returning(Chunk)).mappings().first()
        return None if row is None else Chunk(**row)

    @transaction
    def commit(self, connection: Connection, chunk: Chunk, failed: int) -> bool:
        """Add the records of a chunk, which are synced, to the results of its job, which may end
        with them; `failed` of them are errors.

        Return False if this process has lost the chunk to another process: its records count once.
        """
        # The row of the job is locked first, so that rows of results are numbered one after the
        # other although several hosts commit. A job that has ended, because another process found
        # that it cannot go on, changes no more.
        this = update(Job).where(Job.id == chunk.job, Job.state.in_(UNFINISHED))
        row = connection.scalar(this.values(done=Job.done).returning(Job.done))
        mine = (Chunk.job == chunk.job) & (Chunk.number == chunk.number)
        place = {"file": chunk.file, "at": chunk.at, "length": chunk.length}
        done = update(Chunk).where(mine, Chunk.owner == self.owner, Chunk.state == CLAIMED)
        done = done.values(state=COMMITTED, row=row, finished=self._clock(), **place)
        if row is None or not connection.execute(done).rowcount:
            return False
        added = {
            "done": Job.done + chunk.n_items,
            "failed": Job.failed + failed,
            "stored": Job.stored + chunk.length,
            "problem": None,  # it does not wait any more
        }
        connection.execute(this.values(**added))
        running = (Job.id == chunk.job) & (Job.state == State.RUNNING)
        too_many = update(Job).where(running, Job.failed > Job.max_failures)
        connection.execute(too_many.values(self._ended(State.FAILED, TOO_MANY)))
        complete = update(Job).where(running, Job.done == Job.total)
        connection.execute(complete.values(self._ended(State.SUCCEEDED, None)))
        return True

    @transaction
    def release(self, connection: Connection, jobs: Collection[str]) -> None:
        """Give back the chunks of jobs that this process has claimed and not finished.

        This does not count as an attempt. Call it where this process works on none of the jobs.
        """
        held = update(Chunk).where(Chunk.job.in_(jobs), Chunk.owner == self.owner)
        free = {"state": WAITING, "owner": None, "attempts": Chunk.attempts - 1}
        connection.execute(held.where(Chunk.state == CLAIMED).values(**free))
        self._end_cancelled(connection)

    @transaction
    def renew(self, connection: Connection, jobs: Collection[str]) -> None:
        """Prolong the lease of the chunks of jobs that this process works on."""
        mine = update(Chunk).where(Chunk.job.in_(jobs), Chunk.owner == self.owner)
        mine = mine.where(Chunk.state == CLAIMED)
        connection.execute(mine.values(until=self._clock() + LEASE))

    @transaction
    def release_abandoned(self, connection: Connection) -> int:
        """Free the chunks whose lease has ended; return their number."""
        abandoned = update(Chunk).where(Chunk.state == CLAIMED, Chunk.until < self._clock())
        count = connection.execute(abandoned.values(state=WAITING, owner=None)).rowcount
        self._end_cancelled(connection)
        return count

    @transaction
    def results(self, connection: Connection, job: str, offset: int, limit: int) -> list[ResultRun]:
        """Return at most `limit` committed chunks, in order, from that with row `offset` on."""
        near = Chunk.row > offset - LARGEST_CHUNK  # for the index
        theirs = (Chunk.job == job) & near & (Chunk.row > offset - Chunk.n_items)
        query = select(Chunk.row, Chunk.n_items, Chunk.file, Chunk.at, Chunk.length)
        query = query.where(theirs, Chunk.state == COMMITTED, Chunk.n_items > 0)
        found = connection.execute(query.order_by(Chunk.row).limit(limit))
        return [ResultRun(*row) for row in found]

    # Endings: what is left to do for a job that has ended, and when it is tried next.

    @transaction
    def endings_of(
        self, connection: Connection, jobs: Sequence[str]
    ) -> dict[str, dict[str, Ending]]:
        """Return the endings of jobs by their kind, for each of the ids."""
        endings: dict[str, dict[str, Ending]] = {job: {} for job in jobs}
        found = connection.execute(select(Ending).where(Ending.job.in_(jobs)))
        for row in found.mappings():
            endings[row["job"]][row["kind"]] = Ending(**row)
        return endings

    @transaction
    def claim_endings(self, connection: Connection, limit: int) -> list[Ending]:
        """Take at most `limit` endings that are due.

        An ending is due again after HOLD seconds unless it is postponed or finished, so each is
        done at least once although a process dies.
        """
        now, other = self._clock(), aliased(Ending)
        first = (other.job == Ending.job) & (other.kind == DESTINATION)
        first = (Ending.kind == DESTINATION) | ~exists().where(first, other.state == TO_DO)
        # Webhooks are tried for three days, and results may be kept for less.
        due = (Ending.state == TO_DO) & (Ending.due <= now) & first
        due &= Job.state.in_((*FINISHED, State.EXPIRED))
        queue = select(Ending).join(Job, Job.id == Ending.job).where(due)
        claimed = list[Ending]()
        for row in [*connection.execute(queue.order_by(Ending.due).limit(limit)).mappings()]:
            ending = Ending(**row)
            # Each claim is another attempt, so one of two processes that found this row takes it.
            one = _to_do(ending).where(Ending.attempts == ending.attempts)
            held = {"due": now + HOLD, "attempts": ending.attempts + 1}
            if connection.execute(one.values(**held)).rowcount:
                claimed.append(ending)
        return claimed

    @transaction
    def finish(self, connection: Connection, ending: Ending, state: str, reason: str) -> None:
        """End an ending for good."""
        connection.execute(_to_do(ending).values(state=state, reason=reason))

    @transaction
    def postpone(
        self,
        connection: Connection,
        ending: Ending,
        seconds: float,
        reason: str,
        *,
        counts: bool = True,
    ) -> None:
        """Try an ending again after some seconds; if it `counts`, this was an attempt.

        Do nothing where another process has taken it meanwhile.
        """
        mine = _to_do(ending).where(Ending.attempts == ending.attempts + 1)
        values = {"due": self._clock() + seconds, "reason": reason}
        connection.execute(mine.values(attempts=ending.attempts + counts, **values))


TOO_MANY = problem(
    TooManyFailures("more images failed than `max_failures` allows; the results so far are kept")
)
"""The problem of a job that ended early."""


def _to_do(ending: Ending) -> Update:
    """Return a change of an ending that is not done: a process that stood still comes late."""
    mine = (Ending.job == ending.job) & (Ending.kind == ending.kind)
    return update(Ending).where(mine, Ending.state == TO_DO)


def _one_job(connection: Connection, which: ColumnElement[bool]) -> Job | None:
    row = connection.execute(select(Job).where(which)).mappings().first()
    return None if row is None else Job(**row)


def _stored(connection: Connection) -> dict[str, int]:
    query = select(Job.client, func.sum(Job.stored)).group_by(Job.client)
    return {client: int(total) for client, total in connection.execute(query)}
