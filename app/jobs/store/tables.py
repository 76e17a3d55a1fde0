"""The tables of jobs, and their rows as values.

A job is divided into chunks, runs of consecutive lines of its manifest. A chunk is worked on by one
owner (a process), whose lease is one row of `owners`; when the lease ends, its chunks are free
again. A finished chunk names the bytes of a results file that hold its records. Nothing else in
that file counts, so no item is in the results twice, and none is missing when all chunks are done.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    exists,
)

VERSION = 7
"""The version of these tables; it grows with every change of them."""

WAITING, CLAIMED, DONE = 0, 1, 2
"""The states of a chunk."""

METADATA = MetaData()

META = Table(
    "darkroom_meta",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("value", Integer, nullable=False),
)

JOBS = Table(
    "darkroom_jobs",
    METADATA,
    Column("id", String(32), primary_key=True),  # they are ordered by time
    Column("client", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("operation", String(16), nullable=False),
    Column("options", Text, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    Column("expires", Double),
    Column("key", String(255)),
    Column("digest", String(64), nullable=False),
    Column("problem", Text),
    Column("destination", Text),
    Column("concurrency", Integer),
    UniqueConstraint("client", "key", name="darkroom_jobs_key"),
    Index("darkroom_jobs_client", "client", "id"),
    Index("darkroom_jobs_state", "state", "expires"),
    Index("darkroom_jobs_stored", "client", "stored"),  # sums of a body read it alone
    Index("darkroom_jobs_unfinished", "client", "state"),
)

CHUNKS = Table(
    "darkroom_chunks",
    METADATA,
    Column("job", String(32), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("first", BigInteger, nullable=False),
    Column("n_items", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("stop", BigInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("owner", String(64)),
    Column("attempts", Integer, nullable=False),
    Column("file", String(80)),
    Column("at", BigInteger),
    Column("length", BigInteger),
    Column("row", BigInteger),
    Column("finished", Double),
    Index("darkroom_chunks_state", "job", "state", "number"),
    Index("darkroom_chunks_row", "job", "row"),
    Index("darkroom_chunks_owner", "state", "owner"),
)

ENDINGS = Table(
    "darkroom_endings",
    METADATA,
    Column("job", String(32), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("target", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due", Double, nullable=False),
    Column("body", Text),
    Column("reason", Text),
    Column("owner", String(64)),
    Index("darkroom_endings_due", "state", "due"),
)

OWNERS = Table(
    "darkroom_owners",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("host", String(128), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("began", String(32), nullable=False),
    Column("until", Double, nullable=False),
)


def open_to(owner: str) -> ColumnElement[bool]:
    """Return whether `owner` may claim chunks of a job: of one with a limit of its own only if no
    other owner has one. So one process at a time works on it, and counts its images.
    """
    other = (CHUNKS.c.state == CLAIMED) & (CHUNKS.c.owner != owner)
    return JOBS.c.concurrency.is_(None) | ~exists().where(CHUNKS.c.job == JOBS.c.id, other)


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
    """A run of lines of a manifest: `count` items from item `first` on, at bytes `start:stop`."""

    first: int
    count: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job. Times are seconds since 1970; `stored` are the bytes of its files.

    `destination` is the storage address to which its images and results go, beside the data folder.
    At most `concurrency` of its images are in work at a time; None: as many as the server likes.
    """

    id: str
    client: str
    state: State
    operation: str
    options: dict[str, Any]
    total: int
    done: int
    failed: int
    stored: int
    created: float
    started: float | None = None
    finished: float | None = None
    expires: float | None = None
    key: str | None = None
    digest: str = ""
    problem: dict[str, Any] | None = None
    destination: str | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A chunk of a job that one owner works on."""

    job: str
    number: int
    span: Span
    attempts: int


@dataclass(frozen=True, slots=True)
class Stored:
    """The records of a chunk, synced to a file: `count` of them, of which `failed` are errors."""

    claim: Claim
    file: str
    at: int
    length: int
    count: int
    failed: int


@dataclass(frozen=True, slots=True)
class ResultRun:
    """Rows of results from number `row` on, as bytes of a file."""

    row: int
    count: int
    file: str
    at: int
    length: int


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Unfinished jobs of a client, whether its key has made a job before, and the bytes that jobs
    store, of all clients and of this client.
    """

    unfinished: int
    repeated: bool
    of_all: int
    of_client: int
