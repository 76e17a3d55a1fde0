"""The path of one image: bytes, pixels, the backend, an answer. Knows no HTTP.

Every image is an island: whatever happens to it becomes its own answer, never its neighbours'. So
is every part of an image that is processed: its labels, and each of its versions.
"""

import asyncio
import logging
import operator
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from app.admission import Permit
from app.decoders import DecoderPool
from app.fetch.fetcher import Fetcher
from app.intake.request_items import Item
from app.intake.spool import Blob
from app.intake.wanted import Output, Version, Wanted
from app.pipeline.decoding import ImageDecoder
from app.pipeline.outcomes import Answer, AnswerOutcome, EncodedImage, Processed, VersionAnswer
from app.pipeline.pixel_budget import PixelBudget
from app.pipeline.pixel_cost import check, peak_pixels, peak_pixels_of_parts
from app.pipeline.timings import Timings
from app.telemetry.metrics import Metrics
from models.codec import Decoded
from models.domain.backend import Backend
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import DeadlineExceeded, InternalError, ServiceError
from models.domain.image import Source
from models.domain.job import Job, Labels, Operation, Result
from workers.operations import Classify, FilterChain

log = logging.getLogger("darkroom.pipeline")

T = TypeVar("T")

Work = Callable[[Timings], Coroutine[Any, Any, T]]
"""What is to be done for one item, or for one part of it; the stopwatch is handed in."""


class Pipeline:
    """Fetches, decodes, submits and encodes; `threads` codec threads serve all requests."""

    def __init__(
        self,
        backend: Backend,
        fetcher: Fetcher,
        metrics: Metrics,
        budget: PixelBudget,
        decoders: DecoderPool,
        max_pixels: int,
        threads: int,
    ) -> None:
        self._backend = backend
        self._metrics = metrics
        self._max_pixels = max_pixels
        self._opener = ImageDecoder(fetcher, budget, decoders, max_pixels, threads)

    async def classify(self, item: Item, operation: Classify, permit: Permit) -> Answer:
        """The labels of one item."""

        async def work(stages: Timings) -> Labels:
            async with (
                self._opener.opened(item, permit.deadline, permit, stages) as content,
                permit.turn(operation.batch_key),
            ):
                jpeg = await self._opener.encoded(content, self._backend.load(), stages)
                if jpeg is not None:
                    return await self._labels(jpeg, operation, permit, stages)
                async with self._opener.decoded(content, stages, operator.mul) as decoded:
                    return await self._labels(decoded, operation, permit, stages)

        return await self._answer("classify", item, permit.deadline, work)

    async def filter(
        self,
        item: Item,
        operation: FilterChain,
        output: Output,
        permit: Permit,
    ) -> Answer:
        """One item through a chain of filters, encoded again."""

        async def work(stages: Timings) -> EncodedImage:
            async with (
                self._opener.opened(item, permit.deadline, permit, stages) as content,
                permit.turn(operation.batch_key),
            ):
                jpeg = await self._opener.encoded(content, self._backend.load(), stages)
                opener, needed = self._opener, partial(peak_pixels, operation, self._max_pixels)
                source = (
                    opener.held(jpeg, needed) if jpeg else opener.decoded(content, stages, needed)
                )
                async with source as decoded:
                    return await self._filtered(decoded, operation, output, permit, stages)

        return await self._answer("filter", item, permit.deadline, work)

    async def process(self, item: Item, wanted: Wanted, permit: Permit) -> Answer:
        """Labels and versions of one item, decoded once. It fails if no part of it succeeds."""

        def needed(height: int, width: int) -> int:
            return sum(peak_pixels_of_parts(wanted, self._max_pixels, height, width))

        async def work(stages: Timings) -> Processed:
            async with (
                asyncio.timeout_at(permit.deadline.alarm) as alarm,
                self._opener.opened(item, permit.deadline, permit, stages) as content,
                permit.turn(*wanted.kinds),
                self._opener.decoded(content, stages, needed) as decoded,
            ):
                alarm.reschedule(None)  # from here each part has its own, and some may be in time
                found = await self._parts(item, decoded, wanted, permit, stages)
            if len(found.errors) == wanted.n_parts:
                raise found.errors[0]
            return found

        return await self._answer("process", item, NEVER, work)

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._opener.close()

    async def _parts(
        self, item: Item, decoded: Decoded, wanted: Wanted, permit: Permit, stages: Timings
    ) -> Processed:
        """All parts side by side, as many as memory has room for."""
        info = decoded.info
        largest = max(peak_pixels_of_parts(wanted, self._max_pixels, info.height, info.width))
        turns = asyncio.Semaphore(self._opener.at_once(largest))

        async def part(work: Work[T], stages: Timings) -> T | ServiceError:
            async def in_turn(stages: Timings) -> T:
                async with turns:
                    return await work(stages)

            return await _guarded(item, permit.deadline, partial(in_turn, stages))

        async def labels() -> Labels | ServiceError | None:
            if not isinstance(wanted.labels, Classify):
                return wanted.labels
            work = partial(self._labels, decoded, wanted.labels, permit)
            return await part(work, stages)

        async def version(each: Version) -> VersionAnswer:
            work = partial(self._filtered, decoded, each.operation, each.output, permit)
            own = Timings()
            return VersionAnswer(each.id, await part(work, own), own)

        versions = asyncio.gather(*(version(each) for each in wanted.versions))
        found, filtered = await asyncio.gather(labels(), versions)
        return Processed(found, tuple(filtered))

    async def _answer(
        self, operation: str, item: Item, deadline: Deadline, work: Work[AnswerOutcome]
    ) -> Answer:
        stages = Timings()
        try:
            outcome = await _guarded(item, deadline, partial(work, stages))
        finally:
            if isinstance(item.content, Blob):
                item.content.close()
        answer = Answer(item, outcome, stages)
        self._observe(operation, answer)
        return answer

    def _observe(self, operation: str, answer: Answer) -> None:
        outcome = answer.outcome
        errors = outcome.errors if isinstance(outcome, Processed) else [outcome]
        words = (each.code for each in errors if isinstance(each, ServiceError))
        self._metrics.image(operation, next(words, "ok")).inc()
        for stages in answer.all_stages:
            for stage, seconds in stages.seconds.items():
                self._metrics.stage(stage).observe(seconds)

    async def _labels(
        self, decoded: Decoded, operation: Classify, permit: Permit, stages: Timings
    ) -> Labels:
        result = await self._run(operation, decoded.image, permit, stages)
        assert isinstance(result, Labels)
        return result

    async def _filtered(
        self,
        decoded: Decoded,
        operation: FilterChain,
        output: Output,
        permit: Permit,
        stages: Timings,
    ) -> EncodedImage:
        check(operation, self._max_pixels, decoded.image.height, decoded.image.width)
        format_ = output.format_for(decoded.info.format)
        result = await self._run(operation, decoded.image, permit, stages)
        assert not isinstance(result, Labels)
        with stages.measure("encode"):
            data = await self._opener.encode(result, decoded, format_, output.encoding)
            return EncodedImage(data, format_, result.width, result.height)

    async def _run(
        self, operation: Operation, image: Source, permit: Permit, stages: Timings
    ) -> Result:
        with permit.work(operation.batch_key, image.n_pixels) as work:
            completed = await self._backend.run(Job(operation, image, permit.deadline, permit.lane))
            work.trace = completed.trace
        stages.add(completed.trace)
        return completed.result


async def _guarded(
    item: Item, deadline: Deadline, work: Callable[[], Coroutine[Any, Any, T]]
) -> T | ServiceError:
    """What the work gave, or its error as a value, at the deadline at the latest."""
    try:
        async with asyncio.timeout_at(deadline.alarm):
            return await work()
    except ServiceError as error:
        return error.with_traceback(None)  # its frames hold the pixels
    except TimeoutError:
        return DeadlineExceeded("the request's deadline passed")
    except Exception:  # the item's neighbours are protected from a fault of ours
        log.exception("image failed", extra={"source": item.source})
        return InternalError("an unexpected error; it has been logged")
