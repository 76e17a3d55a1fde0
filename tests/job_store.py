"""The tables of jobs in a database, and two processes that use them, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.jobs.store import Chunk, Database, Job, JobStore, Span, State
from tests.fakes import FakeClock

RETENTION = 100.0


@dataclass
class Store:
    """The jobs of one database, as two processes see them, and their clock."""

    clock: FakeClock
    one: JobStore
    other: JobStore

    async def job(self, id_: str = "1") -> Job:
        """Return a job that is there."""
        found = await self.one.find(id_)
        assert found is not None
        return found


@contextmanager
def stores(url: str | None, folder: Path) -> Iterator[Store]:
    """Open the tables, which are empty, for two processes."""
    database, clock = Database(url, folder), FakeClock(1000.0)
    try:
        yield Store(clock, *(JobStore(database, RETENTION, clock) for _ in range(2)))
    finally:
        database.close()


def job(id_: str = "1", client: str = "me", total: int = 30, **others: Any) -> Job:
    """Return a queued job."""
    options = {"top_k": 1}
    given: dict[str, Any] = {"state": State.QUEUED, "done": 0, "failed": 0, "stored": 5}
    given |= {"created": 1000.0, **others}
    return Job(id_, client, operation="classify", options=options, total=total, **given)


SPANS = [Span(0, 10, 0, 100), Span(10, 10, 100, 200), Span(20, 10, 200, 300)]


def stored(chunk: Chunk) -> Chunk:
    """Return a chunk as if its records were synced."""
    return replace(chunk, file="results", at=chunk.start, length=100)


async def claimed(owner: JobStore, id_: str = "1") -> Chunk:
    """Claim one chunk."""
    claim = await owner.claim(id_)
    assert claim is not None
    return claim
