"""`/jobs` answers what clients can act on: 503 for a database that fails, 404 for odd ids."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from sqlalchemy import text

from app import service
from app.jobs.files import DataFolder
from app.jobs.jobs import Jobs
from app.jobs.store import Database, JobStore, State
from app.routes import jobs as routes
from app.routes import middleware
from app.telemetry.metrics import Metrics
from models.settings import Settings
from tests.job_store import job


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Return the URL of an empty database; None is SQLite."""
    if request.param == "sqlite":
        return None
    found: str = request.getfixturevalue("postgres").database()
    return found


@asynccontextmanager
async def with_a_job(
    url: str | None, folder: Path
) -> AsyncIterator[tuple[httpx.AsyncClient, JobStore]]:
    """Yield a client of the routes, and their store with the finished job `1`."""
    store = JobStore(Database(url, folder), 100.0)
    jobs: Any = SimpleNamespace(store=store, folder=DataFolder(folder))
    jobs.results = partial(Jobs.results, jobs)
    await store.add(job("1", "127.0.0.1", total=0, state=State.SUCCEEDED), [])
    app = FastAPI()
    app.include_router(routes.router)
    fake = SimpleNamespace(jobs=jobs, keys=None)
    middleware.install(app, APIRouter(), Settings(), Metrics())
    app.dependency_overrides[service._service] = lambda: fake
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client, store
    finally:
        store.database.close()


async def test_a_database_that_fails_is_unavailable(url: str | None, tmp_path: Path) -> None:
    async with with_a_job(url, tmp_path) as (client, store):
        assert (await client.get("/jobs/1")).status_code == 200
        gone = text("ALTER TABLE darkroom_jobs RENAME TO gone")
        await store.database.run(lambda connection: connection.execute(gone))
        answer = await client.get("/jobs/1")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) >= 1


async def test_odd_numbers_and_ids_are_no_faults_of_the_server(
    url: str | None, tmp_path: Path
) -> None:
    paths = {
        f"/jobs/1/results?offset={2**63}": 200,
        f"/jobs/1/results?offset={2**70}&limit={2**70}": 200,
        "/jobs/%00": 404,
        "/jobs?before=%00": 200,
        "/jobs?before=1%00": 200,
    }
    async with with_a_job(url, tmp_path) as (client, _):
        assert {path: (await client.get(path)).status_code for path in paths} == paths


def test_an_end_that_is_centuries_away_is_no_moment_of_the_past() -> None:
    slow = job("1", total=10**12, state=State.RUNNING, done=1, started=1e9)
    end = routes._shown(slow, {}).estimated_end
    assert end is not None
    assert end.year == 2603
