"""The tables of jobs in a database, and two processes that use them, for tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import Owner, opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import Claim, Job, Span, State, Stored
from tests.fakes import FakeClock

RETENTION = 100.0


@dataclass
class Store:
    """The tables of one database, two processes that use them, and their clock."""

    clock: FakeClock
    jobs: JobRows
    chunks: ChunkRows
    one: Owner
    other: Owner


@asynccontextmanager
async def stores(url: str | None, folder: Path) -> AsyncIterator[Store]:
    """Open the tables, empty, and begin the leases of both processes."""
    engine, clock = await opened(url, folder), FakeClock(1000.0)
    try:
        store = Store(
            clock,
            JobRows(engine, clock),
            ChunkRows(engine, clock),
            Owner(engine, clock),
            Owner(engine, clock),
        )
        await store.one.enter()
        await store.other.enter()
        yield store
    finally:
        await engine.dispose()


Test = Callable[[Store], Awaitable[None]]
Run = Callable[[Test], None]


def job(id_: str = "1", client: str = "me", key: str | None = None, total: int = 30) -> Job:
    """Return a queued job."""
    return Job(id_, client, State.QUEUED, "classify", {"top_k": 1}, total, 0, 0, 5, 1000.0, key=key)


SPANS = [Span(0, 10, 0, 100), Span(10, 10, 100, 200), Span(20, 10, 200, 300)]


def stored(claim: Claim, failed: int = 0) -> Stored:
    """Return the records of a chunk as if they were synced."""
    return Stored(claim, "results", claim.span.start, 100, claim.span.count, failed)


async def claimed(store: Store, owner: Owner, id_: str = "1") -> Claim:
    """Claim one chunk."""
    claim = await store.chunks.claim(id_, owner.id)
    assert claim is not None
    return claim
