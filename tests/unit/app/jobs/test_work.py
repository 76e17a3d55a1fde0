"""Images of a job: their permits, and further tries of those whose origin is busy."""

import asyncio
from typing import Any, cast

import pytest

from app.admission import Admission, Limits, Permit
from app.intake.item import Item, Url
from app.jobs.manifest import StoredLine
from app.jobs.work import BEHIND, LONGEST_ASKED, TRIES, ImageWorker, Inputs, Work
from app.pipeline.pipeline import Pipeline
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from models.domain.errors import OriginBusy, ServiceError, Unavailable, Undecodable
from models.domain.job import Lane
from models.settings import Settings
from workers.operations import Classify

LINE = StoredLine(url="https://a.example/photo.jpg")


class Failing:
    """A pipeline whose images fail with `error`; `permits` has the permit of each try."""

    def __init__(self, error: ServiceError) -> None:
        self.error, self.permits = error, list[Permit]()

    async def answer(self, item: Item, _wanted: object, permit: Permit) -> Answer:
        assert item.content == Url(LINE.url or "")
        assert permit.lane is Lane.BACKGROUND
        assert permit.deadline.remaining(1000.0) == 120.0 * BEHIND
        self.permits.append(permit)
        return Answer(item, self.error, Timings())


def worker(pipeline: Failing) -> ImageWorker:
    admission = Admission(Limits(images=2, bytes=100, arriving=100), clock=lambda: 1000.0)
    nothing: Any = None
    return ImageWorker(cast(Pipeline, pipeline), admission, nothing, Settings(max_deadline=120.0))


def tried(works: ImageWorker, pipeline: Failing) -> int:
    """Return the number of tries of one image."""
    before = len(pipeline.permits)
    inputs = Inputs(cast(Any, None), 100)
    asyncio.run(works._persistently("me", Work(Classify()), 0, LINE, inputs))
    return len(pipeline.permits) - before


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between tries, in seconds; the test does not wait for them."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


def test_an_image_whose_failure_may_pass_is_tried_again_after_growing_pauses(
    pauses: list[float],
) -> None:
    pipeline = Failing(OriginBusy("no connection", retry_after=0.0))
    assert tried(worker(pipeline), pipeline) == TRIES
    assert pauses[0] <= pauses[1] <= pauses[2] <= 4.0
    pipeline.error = Unavailable("the worker restarts")
    assert tried(worker(pipeline), pipeline) == TRIES
    pipeline.error = Undecodable("damaged")
    assert tried(worker(pipeline), pipeline) == 1


def test_an_origin_may_ask_for_a_bounded_pause(pauses: list[float]) -> None:
    for asked in (20.0, 1e9):
        pipeline = Failing(OriginBusy("busy", retry_after=asked))
        tried(worker(pipeline), pipeline)
    assert min(pauses[: TRIES - 1]) >= 20.0
    assert max(pauses) <= LONGEST_ASKED
