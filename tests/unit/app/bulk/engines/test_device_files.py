"""Plain JPEGs go to a GPU as files, past the pipeline; every other file goes through it."""

import asyncio
from pathlib import Path

import pytest

from app.bulk.engines.engine import Finished, tasks_of
from app.bulk.engines.in_process import InProcess
from app.bulk.engines.work import Classification
from app.bulk.sources.source import Source
from app.pipeline.pipeline import Pipeline
from models.domain.errors import InternalError, ServiceError, Undecodable
from models.domain.image import Jpeg
from models.domain.job import Job, Labels
from tests.fakes import FakeEngine
from tests.in_process import served
from tests.pictures import jpeg, png

SMALL, REFUSED = (32, 24), (40, 24)
"""Sizes of images that are answered, and of one that the device refuses."""


def labels(job: Job) -> Labels | ServiceError:
    """Return labels, but an error for the image of the size REFUSED."""
    size = (job.image.width, job.image.height)
    return Undecodable("the device refuses it") if size == REFUSED else Labels((1, 0), (0.75, 0.25))


@pytest.fixture
def sources(tmp_path: Path) -> list[Source]:
    files = {
        "plain.jpg": jpeg(1, *SMALL),
        "refused.jpg": jpeg(2, *REFUSED),
        "torn.jpg": jpeg(3, *SMALL)[:200],
        "other.png": png(),
        "none.jpg": b"no image",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [Source(str(tmp_path / name), name) for name in [*files, "missing.jpg"]]


def answers(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch, *, files: bool, timing: bool = False
) -> tuple[list[Finished], list[str | None], list[bool]]:
    """Return the records, the images that the pipeline saw, and whether jobs were files."""
    piped: list[str | None] = []
    given: list[bool] = []
    answer = Pipeline.answer

    async def noting(self: Pipeline, item, *rest, **more):  # type: ignore[no-untyped-def]  # a spy
        piped.append(item.source)
        return await answer(self, item, *rest, **more)

    def seen(job: Job) -> Labels | ServiceError:
        given.append(isinstance(job.image, Jpeg))
        return labels(job)

    async def scenario() -> list[Finished]:
        engine = FakeEngine(answer=seen, takes_jpegs=files)
        async with served(engine) as app:
            work = Classification({}, "resnet18", timing)
            tasks = tasks_of(iter(sources))
            found = InProcess(app.state.service, work).answers(tasks)
            return [each async for some in found for each in some]

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "answer", noting)
        records = asyncio.run(scenario())
    return records, piped, given


def test_records_are_those_of_the_pipeline(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    direct, piped, given = answers(sources, monkeypatch, files=True)
    through, _, decoded = answers(sources, monkeypatch, files=False)
    assert direct == through
    assert [each.failed for each in direct] == [False, True, True, False, True, True]
    assert piped == [each.name for each in sources[2:]]
    assert any(given)
    assert not any(decoded)


def test_records_with_timings_come_from_the_pipeline(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    records, piped, _ = answers(sources, monkeypatch, files=True, timing=True)
    assert piped == [each.name for each in sources]
    assert b"timing" in records[0].line


def test_a_fault_of_ours_is_the_error_of_one_image(
    sources: list[Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr("workers.backends.in_process.LocalBackend.run", broken)
        records, _, _ = answers(sources[:2], monkeypatch, files=True)
    assert [each.failed for each in records] == [True, True]
    assert InternalError.code.encode() in records[0].line
