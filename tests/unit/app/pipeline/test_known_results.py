"""Results by content: equal images in flight, and the bounded memory of recent results."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.intake.spool import Blob
from app.intake.wanted import Parts
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.known_results import KnownResults
from app.pipeline.outcomes import AnswerOutcome, EncodedImage, Processed, VersionAnswer
from app.pipeline.reusable import OVERHEAD
from app.pipeline.timings import Timings
from app.telemetry.metrics import Metrics
from models.codec import ImageFormat
from models.domain.errors import Undecodable, WeightsMissing
from models.domain.job import Labels, Lane
from workers.operations import Classify

CONTENT = b"an image"
DEFAULT = Classify()
FOUND = Labels((1,), (0.5,))


class Turn:
    """A turn that counts how often it was left."""

    def __init__(self) -> None:
        self.times_left = 0

    @asynccontextmanager
    async def left(self) -> AsyncIterator[None]:
        self.times_left += 1
        yield


class Fixture:
    """Results with a version that a test changes, and work that ends when a test says so."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.version: object = "first"
        self.files = EncodedFiles(1 << 30)
        self.metrics = Metrics()
        self.results = KnownResults(limit, lambda: self.version, self.files, self.metrics)
        self.computed = 0
        self.go = asyncio.Event()
        self.turn = Turn()

    async def work(self, outcome: AnswerOutcome = FOUND) -> AnswerOutcome:
        self.computed += 1
        await self.go.wait()
        return outcome

    async def failing(self) -> AnswerOutcome:
        self.computed += 1
        await self.go.wait()
        raise Undecodable("broken")

    async def ask(
        self,
        content: bytes = CONTENT,
        wanted: Classify = DEFAULT,
        lane: Lane = Lane.INTERACTIVE,
        work: Coroutine[Any, Any, AnswerOutcome] | None = None,
    ) -> tuple[AnswerOutcome, str | None]:
        """Return an image's outcome, and why it was not computed."""
        stages = Timings()
        key = await self.results.key(Blob.of(content), wanted)
        assert key is not None
        found = self.results.known(key, stages)
        if found is None:
            start = self.work if work is None else lambda: work
            found = await self.results.once(key, lane, self.turn, stages, start)
        elif work is not None:
            work.close()
        return found, stages.reused


async def started(*work: Coroutine[Any, Any, Any]) -> list["asyncio.Task[Any]"]:
    """Start all of the work, and return when none of it can go on."""
    tasks = [asyncio.ensure_future(each) for each in work]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


def test_equal_images_in_flight_are_computed_once() -> None:
    async def scenario() -> None:
        here = Fixture()
        tasks = await started(*(here.ask() for _ in range(3)))
        here.go.set()
        found = await asyncio.gather(*tasks)
        assert here.computed == 1
        assert found == [(FOUND, None), (FOUND, "shared"), (FOUND, "shared")]
        assert here.turn.times_left == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "other",
    [{"content": b"another"}, {"wanted": Classify(top_k=1)}, {"lane": Lane.BULK}],
)
def test_other_bytes_other_parameters_and_another_lane_are_computed_for_themselves(
    other: dict[str, Any],
) -> None:
    async def scenario() -> int:
        here = Fixture()
        tasks = await started(here.ask(), here.ask(**other))
        here.go.set()
        await asyncio.gather(*tasks)
        return here.computed

    assert asyncio.run(scenario()) == 2


def test_the_failure_of_the_first_image_is_its_own() -> None:
    async def scenario() -> None:
        here = Fixture()
        first, *others = await started(here.ask(work=here.failing()), here.ask(), here.ask())
        here.go.set()
        with pytest.raises(Undecodable):
            await first
        assert await asyncio.gather(*others) == [(FOUND, None), (FOUND, None)]
        assert here.computed == 3

    asyncio.run(scenario())


def test_when_the_client_of_the_first_image_leaves_the_second_is_computed() -> None:
    async def scenario() -> None:
        here = Fixture()
        first, second = await started(here.ask(), here.ask())
        first.cancel()
        here.go.set()
        assert await second == (FOUND, None)

    asyncio.run(scenario())


def test_the_deadline_of_an_image_that_waits_ends_it_alone() -> None:
    async def scenario() -> None:
        here = Fixture()
        first, second = await started(here.ask(), here.ask())
        second.cancel()
        await asyncio.wait((second,))
        assert second.cancelled()
        here.go.set()
        assert await first == (FOUND, None)

    asyncio.run(scenario())


def test_a_result_is_kept_and_found_again() -> None:
    async def scenario() -> None:
        here = Fixture()
        here.go.set()
        assert await here.ask() == (FOUND, None)
        assert await here.ask() == (FOUND, "cached")
        assert here.computed == 1
        metrics = here.metrics
        assert metrics.result_cache_hits._value.get() == 1
        assert metrics.result_cache_misses._value.get() == 1
        assert metrics.result_cache_bytes._value.get() == here.results.bytes > 0

    asyncio.run(scenario())


def test_a_result_is_not_served_when_another_version_computes() -> None:
    async def scenario() -> None:
        here = Fixture()
        here.go.set()
        await here.ask()
        here.version = "second"
        assert await here.ask() == (FOUND, None)
        assert here.computed == 2

    asyncio.run(scenario())


def test_a_result_that_was_begun_by_another_version_is_not_kept() -> None:
    async def scenario() -> None:
        here = Fixture()
        (task,) = await started(here.ask())
        here.version = "second"
        here.go.set()
        await task
        assert here.results.bytes == 0

    asyncio.run(scenario())


def test_the_results_that_were_not_used_for_longest_make_room() -> None:
    async def scenario() -> None:
        here = Fixture(limit=5 * OVERHEAD)
        here.go.set()
        for content in (b"0", b"1", b"2", b"3", b"0", b"4"):
            await here.ask(content)
        assert here.results.bytes <= 5 * OVERHEAD
        again = [(await here.ask(content))[1] for content in (b"0", b"4", b"1")]
        assert again == ["cached", "cached", None]

    asyncio.run(scenario())


def test_a_result_larger_than_a_quarter_of_the_limit_is_not_kept() -> None:
    async def scenario() -> None:
        here = Fixture(limit=4 * OVERHEAD)
        here.go.set()
        await here.ask()
        assert here.results.bytes == 0

    asyncio.run(scenario())


def test_without_a_limit_nothing_is_digested() -> None:
    blob = Blob.of(CONTENT)
    assert asyncio.run(Fixture(limit=0).results.key(blob, Classify())) is None
    assert blob._digest is None


def test_parts_whose_labels_cannot_be_had_have_no_key() -> None:
    async def scenario() -> object:
        wanted = Parts(WeightsMissing("none"), ())
        return await Fixture().results.key(Blob.of(CONTENT), wanted)

    assert asyncio.run(scenario()) is None


def test_images_and_versions_are_answered_with_files_of_their_own() -> None:
    async def scenario() -> None:
        here = Fixture()
        here.go.set()
        file = here.files.keep(b"x" * 100_000)
        image = EncodedImage(file, ImageFormat.PNG, 2, 1)
        version = VersionAnswer("small", image, Timings())
        await here.ask(work=here.work(Processed(FOUND, (version,))))
        found, reused = await here.ask()
        assert reused == "cached"
        assert isinstance(found, Processed)
        assert found.labels == FOUND
        (again,) = found.versions
        assert isinstance(again.outcome, EncodedImage)
        assert (again.id, again.outcome.width, again.outcome.height) == ("small", 2, 1)
        assert again.outcome.file is not file
        assert again.outcome.file.read() is file.read()

    asyncio.run(scenario())


def test_an_image_of_which_a_part_has_failed_is_computed_again() -> None:
    async def scenario() -> None:
        here = Fixture()
        here.go.set()
        failed = VersionAnswer(None, Undecodable("broken"), Timings())
        await here.ask(work=here.work(Processed(FOUND, (failed,))))
        await here.ask()
        assert here.computed == 2

    asyncio.run(scenario())
