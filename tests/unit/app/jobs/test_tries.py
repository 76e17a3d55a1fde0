"""Further tries of images of a job: an origin that is gone is given time once."""

import asyncio
from typing import Any, cast

import pytest

from app.intake.item import Item, Url
from app.jobs.manifest import StoredLine
from app.jobs.work import ATTEMPTS, FETCH_ATTEMPTS, LONGEST_ASKED, LOST, ImageWorker, Inputs, Work
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from models.domain.errors import OriginBusy, ServiceError, Unavailable
from workers.operations import Classify

LINE = StoredLine(url="https://a.example/photo.jpg")


class Failing(ImageWorker):
    """Work on images that fail with `error`; `tries` counts them."""

    def __init__(self, error: ServiceError) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, nothing, 1.0)
        self.error, self.tries = error, 0

    async def _answer(self, *_: Any) -> Answer:
        self.tries += 1
        return Answer(Item(0, Url(LINE.url or "")), self.error, Timings())


def tried(worker: Failing, line: StoredLine = LINE) -> int:
    """Return the number of tries of one image."""
    before = worker.tries
    work, inputs = Work(Classify()), cast(Inputs, None)
    asyncio.run(worker._persistently("me", work, 0, line, inputs))
    return worker.tries - before


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses between tries, in seconds; the test does not wait for them."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


def test_an_origin_that_is_gone_has_one_try_for_each_image_until_it_answers(
    pauses: list[float],
) -> None:
    worker = Failing(OriginBusy("no connection", retry_after=0.0))
    assert [tried(worker) for _ in range(LOST + 2)] == [FETCH_ATTEMPTS] * LOST + [1, 1]
    assert pauses[0] <= pauses[1] <= pauses[2] <= 4.0
    worker.error = Unavailable("the worker restarts")
    assert tried(worker) == ATTEMPTS
    worker.error = OriginBusy("no connection", retry_after=0.0)
    assert tried(worker) == FETCH_ATTEMPTS


def test_an_origin_may_ask_for_a_bounded_pause(pauses: list[float]) -> None:
    for asked in (20.0, 1e9):
        tried(Failing(OriginBusy("busy", retry_after=asked)))
    assert min(pauses[: FETCH_ATTEMPTS - 1]) >= 20.0
    assert max(pauses) <= LONGEST_ASKED
