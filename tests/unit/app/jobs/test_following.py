"""Results of a followed job: none is missing that is committed while its end is looked for."""

import asyncio
from types import SimpleNamespace
from typing import Any

from app.jobs.jobs import Jobs
from app.jobs.store.values import State


def test_results_that_come_with_the_end_of_the_job_are_sent() -> None:
    committed: list[bytes] = []

    async def query(_id: str, offset: int, _runs: int) -> list[Any]:
        return [SimpleNamespace(row=0, count=1)] if committed and offset == 0 else []

    async def rows(*_place: object) -> Any:
        yield committed[0]

    async def find(_id: str, _client: str) -> Any:
        committed.append(b'{"index": 0}\n')  # after the query that found nothing
        return SimpleNamespace(state=State.SUCCEEDED)

    job = SimpleNamespace(id="j", client="c", state=State.RUNNING)
    jobs: Any = SimpleNamespace(
        _chunks=SimpleNamespace(results=query), folder=SimpleNamespace(rows=rows), find=find
    )

    async def read() -> list[Any]:
        given: Any = job
        return [piece async for piece in Jobs.results(jobs, given, 0, None, follow=True)]

    assert asyncio.run(read()) == [b'{"index": 0}\n']
