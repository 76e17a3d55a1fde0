"""Results by content: equal images in flight, and the bounded memory of recent results."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from app.intake.spool import Blob
from app.intake.wanted import Parts, Wanted
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.known_results import OVERHEAD, KnownResults
from app.pipeline.outcomes import AnswerOutcome, EncodedImage, Processed, Timings, VersionAnswer
from app.telemetry.metrics import Metrics
from models.codec import ImageFormat
from models.domain.errors import Undecodable, WeightsMissing
from models.domain.job import Labels, Lane
from workers.operations import Classify

CONTENT = b"an image"
DEFAULT = Classify()
FOUND = Labels((1,), (0.5,))


class Fixture:
    """Results with a version that a test changes, and work that ends when a test says so."""

    def __init__(self, limit: int = 1 << 20) -> None:
        self.version: object = "first"
        self.files = EncodedFiles(1 << 30)
        self.metrics = Metrics()
        self.results = KnownResults(limit, lambda: self.version, self.files, self.metrics)
        self.computed = 0
        self.computing = 0
        """Images that are computed now."""
        self.most = 0
        """Most images that were computed at the same time."""
        self.go = asyncio.Event()

    async def work(self, outcome: AnswerOutcome = FOUND) -> AnswerOutcome:
        self.computed += 1
        self.computing += 1
        self.most = max(self.most, self.computing)
        try:
            await self.go.wait()
            return outcome
        finally:
            self.computing -= 1

    async def failing(self) -> AnswerOutcome:
        await self.work()
        raise Undecodable("broken")

    async def ask(
        self,
        content: bytes = CONTENT,
        wanted: Wanted = DEFAULT,
        lane: Lane = Lane.INTERACTIVE,
        client: str = "me",
        work: Coroutine[Any, Any, AnswerOutcome] | None = None,
    ) -> tuple[AnswerOutcome, str | None]:
        """Return an image's outcome, and why it was not computed."""
        stages = Timings()
        permit: Any = SimpleNamespace(client=client, lane=lane)
        start = self.work if work is None else lambda: work
        found = await self.results.outcome(Blob.of(content), wanted, permit, stages, start)
        if work is not None:
            work.close()
        return found, stages.reused


async def started(*work: Coroutine[Any, Any, Any]) -> list["asyncio.Task[Any]"]:
    """Start all of the work, and return when none of it can go on."""
    tasks = [asyncio.ensure_future(each) for each in work]
    for _ in range(10):
        await asyncio.sleep(0)
    return tasks


async def test_equal_images_in_flight_are_computed_once() -> None:
    here = Fixture()
    tasks = await started(*(here.ask() for _ in range(3)))
    here.go.set()
    found = await asyncio.gather(*tasks)
    assert here.computed == 1
    assert found == [(FOUND, None), (FOUND, "shared"), (FOUND, "shared")]


@pytest.mark.parametrize(
    "other",
    [
        {"content": b"another"},
        {"wanted": Classify(top_k=1)},
        {"lane": Lane.BULK},
        {"client": "other"},
    ],
)
async def test_other_bytes_parameters_lanes_and_clients_are_computed_for_themselves(
    other: dict[str, Any],
) -> None:
    here = Fixture()
    tasks = await started(here.ask(), here.ask(**other))
    here.go.set()
    await asyncio.gather(*tasks)
    assert here.computed == 2


async def test_after_the_failure_of_the_first_image_one_other_is_computed_for_the_rest() -> None:
    here = Fixture()
    first, *others = await started(here.ask(work=here.failing()), *(here.ask() for _ in range(63)))
    here.go.set()
    with pytest.raises(Undecodable):
        await first
    found = await asyncio.gather(*others)
    assert [each for each, _ in found] == [FOUND] * 63
    assert here.computed == 2


@pytest.mark.parametrize("limit", [1, 1 << 20])
async def test_when_clients_leave_equal_images_are_computed_one_at_a_time(limit: int) -> None:
    here = Fixture(limit)
    waiting = await started(*(here.ask() for _ in range(64)))
    for left in range(3):
        waiting.pop(0).cancel()
        await started()
        assert (here.computing, here.computed) == (1, left + 2)
    here.go.set()
    found = await asyncio.gather(*waiting)
    assert [each for each, _ in found] == [FOUND] * 61
    assert (here.most, here.computed) == (1, 4)


async def test_a_result_is_kept_and_found_again() -> None:
    here = Fixture()
    here.go.set()
    assert await here.ask() == (FOUND, None)
    assert await here.ask() == (FOUND, "cached")
    assert here.computed == 1
    metrics = here.metrics
    assert metrics.result_cache_hits._value.get() == 1
    assert metrics.result_cache_misses._value.get() == 1
    assert metrics.result_cache_bytes._value.get() == here.results.bytes > 0


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "kept"])
async def test_a_result_of_another_version_is_neither_kept_nor_served(begun: bool) -> None:
    here = Fixture()
    if begun:
        (task,) = await started(here.ask())
        here.version = "second"
    here.go.set()
    await (task if begun else here.ask())
    assert (here.results.bytes == 0) is begun
    here.version = "second"
    assert await here.ask() == (FOUND, None)
    assert here.computed == 2


@pytest.mark.parametrize(
    ("limit", "asked", "again"),
    [(5, "012304", ["cached", "cached", None]), (4, "041", [None, None, None])],
    ids=["not_used_for_longest", "larger_than_a_quarter"],
)
async def test_results_make_room_and_large_results_are_not_kept(
    limit: int, asked: str, again: list[str | None]
) -> None:
    here = Fixture(limit * OVERHEAD)
    here.go.set()
    for content in asked:
        await here.ask(content.encode())
    assert here.results.bytes <= limit * OVERHEAD
    assert [(await here.ask(content))[1] for content in (b"0", b"4", b"1")] == again


async def test_parts_whose_labels_cannot_be_had_are_not_kept() -> None:
    here = Fixture()
    here.go.set()
    found = [await here.ask(wanted=Parts(WeightsMissing("none"), ())) for _ in range(2)]
    assert found == [(FOUND, None)] * 2


async def test_images_and_versions_are_answered_with_files_of_their_own() -> None:
    here = Fixture()
    here.go.set()
    file = here.files.shared(b"x" * 100_000)
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


@pytest.mark.parametrize(("limit", "in_memory"), [(100_000, 1 << 20), (1 << 20, 0)])
async def test_a_file_that_is_large_or_on_disk_is_not_kept(limit: int, in_memory: int) -> None:
    here = Fixture(limit)
    here.go.set()
    file = await EncodedFiles(1 << 30, in_memory).keep(bytes(100_000))
    assert file.in_memory == bool(in_memory)
    image = EncodedImage(file, ImageFormat.PNG, 2, 1)
    assert (await here.ask(work=here.work(image)))[0] is image
    assert here.results.bytes == 0
