"""Jobs, chunks and claims as values, independent of the database."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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
class Rows:
    """Rows of results from number `row` on, as bytes of a file."""

    row: int
    count: int
    file: str
    at: int
    length: int
