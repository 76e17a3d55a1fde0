"""Places for bodies that arrive: few for one client, whatever arrives at the same moment."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.jobs.files import DataFolder
from app.jobs.store.arrivals import Arrivals
from app.jobs.store.database import opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.owners import Owner
from app.jobs.submission.acceptance import ARRIVING_OF_ONE, Acceptance
from app.jobs.submission.asked import Asked
from app.jobs.submission.room import DataRoom
from app.jobs.submission.sources import Sources
from models.domain.job_errors import TooManyJobs
from models.settings import Settings


def asked(client: str) -> Asked:
    return Asked(client, "classify", {}, None, None, None, None)


@pytest.mark.parametrize("n_processes", [1, 3])
@pytest.mark.parametrize("others", [1, 30])
def test_bodies_that_arrive_at_the_same_moment_get_four_places_of_one_client(
    tmp_path: Path, others: int, n_processes: int
) -> None:
    """The database is asked between two steps of each, so a count after that comes too late."""
    ended = asyncio.Event()

    async def receive() -> Message:
        await ended.wait()
        return {"type": "http.request", "body": b'{"data": "data:,"}', "more_body": False}

    async def scenario() -> list[object]:
        folder, settings = DataFolder(tmp_path), Settings(max_jobs_per_client=100)
        folder.make()
        engine = await opened(None, tmp_path)
        rows, owner = JobRows(engine), Owner(engine)
        await owner.enter()
        no_sources = cast(Sources, None)
        most = settings.max_data_bytes
        processes = [
            Acceptance(
                folder,
                rows,
                DataRoom(Arrivals(engine, owner.id), most, most),
                settings,
                32,
                lambda: None,
                no_sources,
            )
            for _ in range(n_processes)
        ]
        scope = {"type": "http", "headers": [], "method": "POST", "path": "/jobs"}

        def accepted(client: str, number: int = 0) -> asyncio.Task[object]:
            accepting = processes[number % n_processes]
            request = Request(scope, receive)
            kind = "application/x-ndjson"
            return asyncio.ensure_future(accepting.accept(asked(client), request, kind, 0))

        try:
            flood = [accepted("one", number) for number in range(ARRIVING_OF_ONE + others)]
            other = accepted("other")
            await asyncio.sleep(0.2)
            ended.set()
            found = await asyncio.gather(*flood, other, return_exceptions=True)
        finally:
            await engine.dispose()
        return [*found]

    found = asyncio.run(scenario())
    refused = [each for each in found if isinstance(each, TooManyJobs)]
    assert len(refused) == others
    assert not isinstance(found[-1], Exception)
