"""Results of a followed job: none is missing that is committed while its end is looked for."""

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import insert

from app.jobs import jobs as facade
from app.jobs.files import DataFolder
from app.jobs.jobs import Jobs
from app.jobs.store.chunks import ChunkRows
from app.jobs.store.database import opened
from app.jobs.store.jobs import JobRows
from app.jobs.store.tables import CHUNKS, DONE
from app.jobs.store.values import Job, State
from models.domain.errors import NotFound
from models.domain.job_errors import ResultsExpired


def test_results_that_come_with_the_end_of_the_job_are_sent() -> None:
    committed: list[bytes] = []

    async def query(_id: str, offset: int, _runs: int) -> list[Any]:
        return [SimpleNamespace(row=0, count=1)] if committed and offset == 0 else []

    async def rows(*_place: object) -> Any:
        yield committed[0]

    async def find(_id: str, _client: str) -> Any:
        committed.append(b'{"index": 0}\n')  # after the query that found nothing
        return SimpleNamespace(state=State.SUCCEEDED)

    job = SimpleNamespace(id="j", client="c", state=State.RUNNING, total=1)
    jobs: Any = SimpleNamespace(
        _chunks=SimpleNamespace(results=query), folder=SimpleNamespace(rows=rows), find=find
    )

    async def read() -> list[Any]:
        given: Any = job
        return [piece async for piece in Jobs.results(jobs, given, 0, None, follow=True)]

    assert asyncio.run(read()) == [b'{"index": 0}\n']


@pytest.mark.parametrize(
    ("gone", "error"),
    [("expire", ResultsExpired), ("remove", NotFound)],
    ids=["expired", "removed"],
)
def test_results_that_go_while_they_are_read_end_with_an_error(
    gone: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary end would tell the client that it has all of them."""

    async def test() -> None:
        engine = await opened(None, tmp_path)
        rows, folder = JobRows(engine), DataFolder(tmp_path)
        jobs: Any = SimpleNamespace(_chunks=ChunkRows(engine), folder=folder, rows=rows)
        jobs.find = partial(Jobs.find, jobs)
        try:
            new = Job("1", "me", State.SUCCEEDED, "classify", {}, 2, 2, 0, 0, 1.0, expires=1.0)
            await rows.add(new, [])
            folder.make()
            (folder.add("1") / "r").write_bytes(b"{}\n" * 2)
            for n in range(2):
                place = {"file": "r", "at": 3 * n, "length": 3, "row": n, "finished": 1.0}
                span = {"first": n, "n_items": 1, "start": 0, "stop": 0, "attempts": 1}
                async with engine.begin() as connection:
                    row = {"job": "1", "number": n, "state": DONE, **span, **place}
                    await connection.execute(insert(CHUNKS), [row])
            results = Jobs.results(jobs, new, 0, None, follow=False)
            assert bytes(await anext(results)) == b"{}\n"
            await (rows.expire() if gone == "expire" else rows.remove("1"))
            with pytest.raises(error):
                async for _ in results:
                    pass
        finally:
            await engine.dispose()

    monkeypatch.setattr(facade, "RUNS", 1)  # as many results as two queries find
    asyncio.run(test())
