"""Results as clients read them: whole although they expire, and followed until the job ends."""

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.admission.counters import Counters
from app.jobs import results as reading
from app.jobs.files import DataFolder
from app.jobs.jobs import MOST_FOLLOWERS, Jobs
from app.jobs.results import Records, results_zip
from app.jobs.runner import ChunkRecords
from app.jobs.store import Job
from models.domain.errors import Cancelled, NotFound, ResultsExpired, TooManyFollowers
from tests.job_store import RETENTION, SPANS, Store, claimed, job, stores

TOTAL = 30


class Reader(Jobs):
    """The jobs of a folder, of which results are read alone."""

    def __init__(self, store: Store, folder: DataFolder) -> None:
        self.folder, self.store, self.stores = folder, store.one, store
        self._counters, self.leaving, self._stopping = Counters(), False, lambda: False

    async def finish_chunk(self) -> None:
        """Finish the next chunk of ten items."""
        claim = await claimed(self.store)
        with closing(ChunkRecords(claim, self.folder.root)) as records:
            for index in range(claim.first, claim.first + claim.n_items):
                await records.add(b'{"index":%d}\n' % index, failed=False)
            made = records.store(self.folder.of("1") / "results")
        await self.store.commit(made, 0)

    async def job(self) -> Job:
        return await self.stores.job()

    async def expire(self) -> None:
        """Let the job expire, and remove its files as a sweep does."""
        self.stores.clock.now += 2 * RETENTION
        assert await self.store.expire() == ["1"]
        self.folder.remove("1")


@asynccontextmanager
async def reader(root: Path, n_chunks: int) -> AsyncIterator[Reader]:
    """Open a folder with one job of three chunks, of which some are finished."""
    with stores(None, root) as store:
        folder = DataFolder(root)
        folder.make()
        folder.of("1").mkdir()
        await store.one.add(job(), SPANS)
        jobs = Reader(store, folder)
        for _ in range(n_chunks):
            await jobs.finish_chunk()
        yield jobs


async def text_of(found: Any) -> list[int]:
    """Return the numbers of all records."""
    async with aclosing(found):
        lines = b"".join([bytes(piece) async for piece in found.read()]).splitlines()
    return [int(each.removeprefix(b'{"index":')[:-1]) for each in lines if each]


async def test_results_of_an_expired_job_are_refused_before_the_first_byte(tmp_path: Path) -> None:
    async with reader(tmp_path, 3) as jobs:
        before = await jobs.job()
        jobs.stores.clock.now += 2 * RETENTION
        with pytest.raises(ResultsExpired):  # although no sweep has removed them
            await jobs.results(await jobs.store.of_client("1", "me"))
        await jobs.expire()
        for each in (before, await jobs.job()):
            with pytest.raises(ResultsExpired):
                await jobs.results(each)
        await jobs.store.remove("1")
        with pytest.raises(NotFound):
            await jobs.results(before)


@pytest.mark.parametrize("gone", ["expire", "remove"])
async def test_results_that_go_while_they_are_read_are_read_whole(
    gone: str, tmp_path: Path
) -> None:
    async with reader(tmp_path, 3) as jobs:
        found = await jobs.results(await jobs.job())
        await (jobs.expire() if gone == "expire" else jobs.delete("1", "me"))
        assert await text_of(found) == [*range(TOTAL)]


async def test_results_begin_and_end_at_any_record(tmp_path: Path) -> None:
    async with reader(tmp_path, 3) as jobs:
        for offset, limit in ((0, 1), (5, 10), (9, 12), (25, 100), (30, 5)):
            found = await jobs.results(await jobs.job(), offset, limit)
            assert await text_of(found) == [*range(TOTAL)][offset : offset + limit]


async def test_followers_miss_nothing_and_are_limited_for_each_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FOLLOW", 0.01)

    async with reader(tmp_path, 1) as jobs:
        now = await jobs.job()
        held = [await jobs.results(now, follow=True) for _ in range(MOST_FOLLOWERS)]
        with pytest.raises(TooManyFollowers):
            await jobs.results(now, follow=True)
        await (await jobs.results(now)).aclose()  # without following there is no limit
        await held.pop().aclose()
        held.append(await jobs.results(now, follow=True))
        await jobs.finish_chunk()
        tasks = [asyncio.create_task(text_of(each)) for each in held]
        await jobs.finish_chunk()
        assert await asyncio.gather(*tasks) == [[*range(TOTAL)]] * MOST_FOLLOWERS


async def test_a_stopping_server_ends_followed_results_after_a_whole_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client goes on from its offset elsewhere; a ZIP that ends early would look complete."""
    monkeypatch.setattr(reading, "FOLLOW", 0.01)

    async with reader(tmp_path, 1) as jobs:
        now = await jobs.job()
        lines, whole = [await jobs.results(now, follow=True, whole=each) for each in (False, True)]
        async with aclosing(lines), aclosing(lines.read()) as pieces:
            assert (await anext(pieces)).count(b"\n") == 10
            jobs.leaving = True
            assert [piece async for piece in pieces] == []
        with pytest.raises(Cancelled):
            await text_of(whole)
        cut = await text_of(await jobs.results(now, follow=True))  # in a long run of records
        assert cut == [*range(len(cut))]
        assert 0 < len(cut) < 10


async def test_empty_lines_are_sent_while_no_record_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SILENCE", 0.05)
    monkeypatch.setattr(reading, "FOLLOW", 0.01)  # looks in vain do not end the silence

    async with reader(tmp_path, 1) as jobs:
        found = await jobs.results(await jobs.job(), follow=True)
        async with aclosing(found), aclosing(found.read()) as pieces:
            assert (await anext(pieces)).count(b"\n") == 10
            assert [await anext(pieces) for _ in range(3)] == [b"\n"] * 3


CONTENT = {0: b"first" * 90_000, 1: b"", 2: b"last"}


async def three_images() -> Records:
    for index, content in CONTENT.items():
        yield b"\n"  # no record has come for long
        data = base64.b64encode(content).decode()
        image = {"media_type": "image/png", "data": data, "name": f"{index}.png"}
        yield json.dumps({"index": index, "status": "ok", "image": image}).encode() + b"\n"


@pytest.mark.parametrize("images", [True, False])
async def test_images_are_files_of_a_zip_which_the_records_name(images: bool) -> None:
    pieces = results_zip(three_images, lambda records: records, images=images)
    content = b"".join([bytes(each) async for each in pieces])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        records = [json.loads(line) for line in archive.read("results.jsonl").splitlines()]
        files = {each: archive.read(each) for each in archive.namelist()[:-1]}
    assert [each["image"]["name"] for each in records] == [f"images/{n}.png" for n in CONTENT]
    named = {f"images/{index}.png": content for index, content in CONTENT.items()}
    assert files == (named if images else {})


async def test_records_are_rows_of_a_parquet_file_in_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    monkeypatch.setattr(reading, "ROWS", 2)
    vector = base64.b64encode(np.array([0.5, -2], np.float32).tobytes()).decode()
    records = [
        {"index": 0, "id": "a", "status": "ok", "predictions": [{"label": "cat", "score": 0.75}]},
        {"index": 1, "source": "b.jpg", "status": "error", "error": {"code": "undecodable"}},
        {"index": 2, "status": "ok", "logits": vector},
        {"index": 3, "status": "ok", "embedding": [0.5, -2.0]},
        {"index": 4, "status": "ok", "versions": [{"index": 0, "image": {"data": "/w=="}}]},
    ]

    async def lines() -> Records:
        for each in records:
            yield json.dumps(each).encode() + b"\n"

    body = b"".join([bytes(each) async for each in reading.results_parquet(lines())])
    file = pq.ParquetFile(io.BytesIO(body))
    assert file.num_row_groups == 3
    rows = file.read().to_pylist()
    assert [each["index"] for each in rows] == [*range(5)]
    assert rows[0]["predictions"] == [
        {"label": "cat", "wnid": None, "class_id": None, "score": 0.75}
    ]
    assert (rows[1]["source"], rows[1]["error"]["code"]) == ("b.jpg", "undecodable")
    assert rows[2]["logits"] == rows[3]["embedding"] == [0.5, -2.0]
    assert rows[4]["versions"][0]["image"]["data"] == b"\xff"
    assert rows[4]["image"] is None
    images = [bytes(each) async for each in reading.results_parquet(three_images())]
    found = pq.read_table(io.BytesIO(b"".join(images))).to_pylist()
    assert [each["image"]["data"] for each in found] == [*CONTENT.values()]
