"""Results as clients read them: whole although they expire, and followed by one look for all."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from app.admission.counters import Counters
from app.jobs import results as reading
from app.jobs.files import DataFolder
from app.jobs.jobs import MOST_FOLLOWERS, Jobs
from app.jobs.results import Following
from app.jobs.runner import ChunkRecords
from app.jobs.store.tables import Job
from models.domain.errors import Cancelled, NotFound, ResultsExpired, TooManyFollowers
from tests import job_store
from tests.job_store import RETENTION, SPANS, Store, claimed, job

TOTAL = 30


class Reader(Jobs):
    """The jobs of a folder, of which results are read alone."""

    def __init__(self, store: Store, folder: DataFolder) -> None:
        self.folder, self.rows, self._chunks = folder, store.jobs, store.chunks
        self._counters, self.stops, self.looks = Counters(), False, 0
        self._following = Following(store.jobs, store.chunks, lambda: self.stops)
        self._store = store

    async def finish_chunk(self) -> None:
        """Finish the next chunk of ten items."""
        claim = await claimed(self._store, self._store.one)
        with closing(ChunkRecords(claim, self.folder.root)) as records:
            for index in range(claim.span.first, claim.span.first + claim.span.count):
                await records.add(b'{"index":%d}\n' % index, failed=False)
            made = records.store(self.folder.of("1") / "results")
        await self._store.chunks.commit(made, self._store.one.id, RETENTION)

    async def job(self) -> Job:
        found = await self.rows.find("1")
        assert found is not None
        return found

    async def expire(self) -> None:
        """Let the job expire, and remove its files as a sweep does."""
        self._store.clock.now += 2 * RETENTION
        assert await self.rows.expire() == ["1"]
        self.folder.remove("1")


@asynccontextmanager
async def reader(root: Path, n_chunks: int = 0) -> AsyncIterator[Reader]:
    """Return the jobs of a folder, with one job of three chunks, of which some are finished."""
    async with job_store.stores(None, root) as tables:
        folder = DataFolder(root)
        folder.make()
        folder.add("1")
        await tables.jobs.add(job(), SPANS)
        jobs = Reader(tables, folder)
        for _ in range(n_chunks):
            await jobs.finish_chunk()
        yield jobs
        await jobs._following.aclose()
        assert not jobs._following._tasks


async def text_of(found: Any) -> list[int]:
    """Return the numbers of all records."""
    async with aclosing(found):
        lines = b"".join([bytes(piece) async for piece in found.read()]).splitlines()
    return [int(each.removeprefix(b'{"index":')[:-1]) for each in lines if each]


def test_results_of_an_expired_job_are_refused_before_the_first_byte(tmp_path: Path) -> None:
    async def test() -> None:
        async with reader(tmp_path, 3) as jobs:
            before = await jobs.job()
            await jobs.expire()
            for each in (before, await jobs.job()):
                with pytest.raises(ResultsExpired):
                    await jobs.results(each)
            await jobs.rows.remove("1")
            with pytest.raises(NotFound):
                await jobs.results(before)

    asyncio.run(test())


@pytest.mark.parametrize("gone", ["expire", "remove"])
def test_results_that_go_while_they_are_read_are_read_whole(gone: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with reader(tmp_path, 3) as jobs:
            found = await jobs.results(await jobs.job())
            if gone == "expire":
                await jobs.expire()
            else:
                await jobs.delete("1", "me")
            assert await text_of(found) == [*range(TOTAL)]

    asyncio.run(test())


@pytest.mark.parametrize(("offset", "limit"), [(0, 1), (5, 10), (9, 12), (25, 100), (30, 5)])
def test_results_begin_and_end_at_any_record(offset: int, limit: int, tmp_path: Path) -> None:
    async def test() -> None:
        async with reader(tmp_path, 3) as jobs:
            found = await jobs.results(await jobs.job(), offset, limit)
            assert await text_of(found) == [*range(TOTAL)][offset : offset + limit]

    asyncio.run(test())


def test_followers_share_the_looks_at_a_job_and_miss_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FOLLOW", 0.01)

    async def test() -> None:
        async with reader(tmp_path, 1) as jobs:
            now, looks = await jobs.job(), 0
            states = jobs.rows.states

            async def counted(ids: Any) -> Any:
                nonlocal looks
                looks += 1
                return await states(ids)

            monkeypatch.setattr(jobs.rows, "states", counted)
            opened = [await jobs.results(now, follow=True) for _ in range(MOST_FOLLOWERS)]
            await jobs.finish_chunk()
            assert len(jobs._following._tasks) == 1
            tasks = [asyncio.create_task(text_of(each)) for each in opened]
            began, looks = time.monotonic(), 0
            await asyncio.sleep(0.1)
            assert looks <= (time.monotonic() - began) / 0.01 + 3  # one task looks for all
            await jobs.finish_chunk()
            assert await asyncio.gather(*tasks) == [[*range(TOTAL)]] * MOST_FOLLOWERS

    asyncio.run(test())


def test_a_client_follows_a_limited_number_of_results(tmp_path: Path) -> None:
    async def test() -> None:
        async with reader(tmp_path) as jobs:
            now = await jobs.job()
            held = [await jobs.results(now, follow=True) for _ in range(MOST_FOLLOWERS)]
            with pytest.raises(TooManyFollowers):
                await jobs.results(now, follow=True)
            await (await jobs.results(now)).aclose()  # without following there is no limit
            await held.pop().aclose()
            held.append(await jobs.results(now, follow=True))
            for each in held:
                await each.aclose()

    asyncio.run(test())


def test_a_stopping_server_ends_followed_results_after_a_whole_record(tmp_path: Path) -> None:
    """The client goes on from its offset elsewhere; a ZIP that ends early would look complete."""

    async def test() -> None:
        async with reader(tmp_path, 1) as jobs:
            now = await jobs.job()
            lines, whole = [
                await jobs.results(now, follow=True, whole=whole) for whole in (False, True)
            ]
            tasks = [asyncio.create_task(text_of(each)) for each in (lines, whole)]
            await asyncio.sleep(0.05)
            jobs.stops = True
            begun = asyncio.get_running_loop().time()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert asyncio.get_running_loop().time() - begun < 1.0
            assert found[0] == [*range(10)]
            assert isinstance(found[1], Cancelled)

    asyncio.run(test())


def test_a_stopping_server_cuts_a_long_run_of_records(tmp_path: Path) -> None:
    async def test() -> None:
        async with reader(tmp_path, 2) as jobs:
            found = await jobs.results(await jobs.job(), follow=True)
            jobs.stops = True
            read = await text_of(found)
            assert read == [*range(len(read))]
            assert 0 < len(read) < 20

    asyncio.run(test())


def test_empty_lines_are_sent_while_no_record_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SILENCE", 0.05)
    monkeypatch.setattr(reading, "FOLLOW", 0.01)  # looks in vain do not end the silence

    async def test() -> None:
        async with reader(tmp_path, 1) as jobs:
            found = await jobs.results(await jobs.job(), follow=True)
            async with aclosing(found), aclosing(found.read()) as pieces:
                assert (await anext(pieces)).count(b"\n") == 10
                assert [await anext(pieces) for _ in range(3)] == [b"\n"] * 3

    asyncio.run(test())
