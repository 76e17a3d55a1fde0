"""Process one image: bytes, pixels, the backend, an outcome.

Each image of a request is independent: whatever happens to it becomes its own answer. So is each
part of an image that `/process` takes apart: its labels, and each of its versions.
"""

import asyncio
import operator
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from app.admission import Permit
from app.decoders import DecoderPool, Seen
from app.fetch.fetcher import Fetcher
from app.http.request import Departure, StreamWindow
from app.intake.item import Item, Url
from app.intake.spool import Blob
from app.intake.wanted import (
    Admitted,
    ClassifyTensors,
    Describe,
    ImageRequest,
    Parts,
    Version,
    Wanted,
    work_on,
)
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import HeldImage, ImageContext, alarm_of, caught
from app.pipeline.decoding import ImageDecoder
from app.pipeline.encoding import Encoder
from app.pipeline.memory import HeldMemory, Memory, NeedsMemory, to_classify, to_filter, to_process
from app.pipeline.results.encoded_files import EncodedFiles
from app.pipeline.results.outcomes import (
    Answer,
    AnswerOutcome,
    EncodedImage,
    Processed,
    VersionAnswer,
)
from app.pipeline.results.timings import Timings
from app.pipeline.runner import run, run_window
from app.telemetry.metrics import Metrics
from models.domain.backend import Backend
from models.domain.errors import InvalidParameter, ServiceError
from models.domain.image import Source
from models.domain.job import Job, Labels, Operation, Result, Vector
from workers.operations import Classify

if TYPE_CHECKING:  # plain servers load neither the result cache nor OpenTelemetry
    from app.pipeline.results.known_results import KnownResults
    from app.pipeline.results.spans import Spans

T = TypeVar("T")

_NAMES = {
    Classify: "classify",
    ClassifyTensors: "classify",
    Version: "filter",
    Parts: "process",
    Describe: "info",
}
"""The label of each kind of request in metrics."""


class Pipeline:
    """Fetch, decode, compute and encode; `threads` codec threads serve all requests."""

    def __init__(
        self,
        backend: Backend,
        fetcher: Fetcher,
        metrics: Metrics,
        memory: Memory,
        decoders: DecoderPool,
        files: EncodedFiles,
        known: "KnownResults | None",
        max_pixels: int,
        threads: int,
    ) -> None:
        self.spans: Spans | None = None
        """Makes the spans of traces, or None if there are none."""
        self._observed = metrics.on_image
        self._memory = memory
        self._files = files
        self._known = known
        self._max_pixels = max_pixels
        self._threads = CodecThreads(threads)
        self._decoder = ImageDecoder(fetcher, decoders, self._threads, max_pixels)
        self._backend = backend
        self._encoder = Encoder(decoders, self._threads, max_pixels)

    def answers(
        self, request: ImageRequest, permit: Permit, left: Departure
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answer of each image as it finishes; raises Cancelled when the client leaves.

        Nothing starts before the first answer is asked for. Close the generator to end the work.
        """
        work = partial(self.answer, wanted=request.wanted, permit=permit)
        return run(work, request.items, left)

    def stream(
        self, items: AsyncGenerator[Admitted, None], wanted: Wanted, window: StreamWindow
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answer of each image of a stream as it finishes; see `run_window`."""
        return run_window(partial(self._admitted, wanted), items, window, Admitted.release)

    async def _admitted(self, wanted: Wanted, each: Admitted) -> Answer:
        if each.permit is not None:
            return await self.answer(each.item, wanted, each.permit)
        assert isinstance(each.item.content, ServiceError)
        answer = Answer(each.item, each.item.content, Timings())
        self._observe(_NAMES[type(wanted)], answer)
        return answer

    async def fetched(
        self, items: tuple[Item, ...], permit: Permit, left: Departure
    ) -> tuple[Item, ...]:
        """Return the items with the contents of all URLs, or with the errors of their fetches.

        Raises Cancelled when the client leaves.
        """

        async def opened(item: Item) -> Item:
            if not isinstance(item.content, Url):
                return item
            work = self._decoder.opened(item, permit, Timings())
            return replace(item, content=await caught(item, alarm_of(permit), work))

        found = [each async for each in run(opened, items, left)]
        return tuple(sorted(found, key=operator.attrgetter("index")))

    async def answer(self, item: Item, wanted: Wanted, permit: Permit) -> Answer:
        """Do what is wanted of one item; an error becomes the outcome of the answer."""
        began = time.monotonic() if self.spans is not None else 0.0
        memory = HeldMemory(self._memory, permit.client)
        context = ImageContext(item, permit, Timings(), alarm_of(permit), memory)
        try:
            work = self._outcome(context, wanted)
            outcome = await caught(item, context.alarm, work)
        finally:
            memory.release()
        answer = Answer(item, outcome, context.stages)
        self._observe(_NAMES[type(wanted)], answer)
        if self.spans is not None:
            self.spans.image(_NAMES[type(wanted)], answer, began)
        return answer

    def set_unread_limit(self, limit: int) -> None:
        """Bound the bytes of answers that their clients have not read, from now on."""
        self._files.set_limit(limit)

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._threads.close()

    async def _outcome(self, context: ImageContext, wanted: Wanted) -> AnswerOutcome:
        """Open the item, wait for its turn among all clients, then do what is wanted.

        A result that is known already, or that an equal image gets just now, needs no turn.
        """
        permit = context.permit
        content = await self._decoder.opened(context.item, permit, context.stages)
        compute = partial(self._computed, content, wanted, context)
        try:
            if self._known is None:
                return await compute()
            key = await self._known.key(content, wanted, permit.client)
            if key is None:
                return await compute()
            return await self._known.once(key, permit.lane, context.stages, compute)
        finally:
            content.close()

    async def _computed(
        self, content: Blob, wanted: Wanted, context: ImageContext
    ) -> AnswerOutcome:
        """Do the work of an image in its turn; where it needs memory, hold that and try again."""
        with context.permit.work(work_on(content, wanted, self._max_pixels)) as work:
            while True:
                try:
                    await work.enter()
                    return await self._in_turn(content, wanted, context)
                except NeedsMemory as more:
                    n_bytes = more.n_bytes
                work.leave()
                await context.memory.hold(n_bytes)

    async def _in_turn(self, content: Blob, wanted: Wanted, context: ImageContext) -> AnswerOutcome:
        if isinstance(wanted, Classify):
            return await self._classified(content, wanted, context)
        if isinstance(wanted, Version):
            return await self._filtered(content, wanted, context)
        if isinstance(wanted, ClassifyTensors):
            image = await self._decoder.tensor(content, wanted, context)
            return check_finite(await self._labels(image, wanted.operation, context))
        if isinstance(wanted, Describe):
            return await self._decoder.described(content, context, colour=wanted.colour)
        return await self._processed(content, wanted, context)

    async def _labels(
        self, image: Source, operation: Classify, context: ImageContext
    ) -> Labels | Vector:
        """Return the labels of an image, or the vector that is wanted instead of them."""
        result = await self._run(operation, image, context.permit, context.stages)
        assert isinstance(result, Labels | Vector)
        return result

    async def _classified(
        self, content: Blob, operation: Classify, context: ImageContext
    ) -> Labels | Vector:
        jpeg = await self._decoder.encoded(content, self._backend.load(), context.stages)
        if jpeg is not None:
            return await self._labels(jpeg.image, operation, context)
        held = await self._decoder.decoded(content, context, to_classify)
        return await self._labels(held.image(last=True), operation, context)

    async def _filtered(
        self, content: Blob, version: Version, context: ImageContext
    ) -> EncodedImage:
        permit, stages, load = context.permit, context.stages, self._backend.load()
        jpeg = await self._decoder.encoded(content, load, stages)
        encoded = jpeg is not None
        on_device = encoded or load.on_gpu
        need = partial(to_filter, version, self._max_pixels, on_device=on_device, encoded=encoded)
        if jpeg is not None:
            context.memory.check(need(Seen(jpeg.info, 0.0)))
            held = HeldImage(jpeg)
        else:
            held = await self._decoder.decoded(content, context, need)
        return await self._encoded(held, version, permit, stages, last=True)

    async def _processed(self, content: Blob, wanted: Parts, context: ImageContext) -> Processed:
        """Decode the image once for all parts, as many at a time as memory has room for.

        Raises the first error if no part has succeeded.
        """
        on_device = self._backend.load().on_gpu
        need = partial(to_process, wanted, self._max_pixels, self._memory, on_device=on_device)
        source = await self._decoder.decoded(content, context, lambda seen: need(seen)[0])
        context.alarm.stop()  # from here on each part has an alarm of its own
        turns = asyncio.Semaphore(need(Seen(source.info, 0.0))[1])
        permit = context.permit

        async def part(work: Callable[[], Coroutine[Any, Any, T]]) -> T | ServiceError:
            async def in_turn() -> T:
                async with turns:
                    return await work()

            return await caught(context.item, alarm_of(permit), in_turn())

        async def labels() -> Labels | Vector | ServiceError | None:
            if not isinstance(wanted.labels, Classify):
                return wanted.labels
            return await part(partial(self._labels, source.image(), wanted.labels, context))

        async def version(each: Version) -> VersionAnswer:
            stages = Timings()
            work = partial(self._encoded, source, each, permit, stages, last=False)
            return VersionAnswer(each.id, await part(work), stages)

        versions = asyncio.gather(*map(version, wanted.versions))
        label_outcome, filtered = await asyncio.gather(labels(), versions)
        found = Processed(label_outcome, tuple(filtered))
        if len(found.errors) == wanted.n_parts:
            raise found.errors[0]
        return found

    async def _encoded(
        self, source: HeldImage, version: Version, permit: Permit, stages: Timings, *, last: bool
    ) -> EncodedImage:
        """Put an image through the filters of a version and encode it.

        `last`: the source is not needed after the filters.
        """
        operation = version.operation
        format_, on_gpu = version.format_for(source.info.format), self._backend.load().on_gpu
        cost = self._encoder.cost(source, version, format_, on_gpu=on_gpu, shared=not last)
        result = await self._run(operation, source.image(last=last), permit, stages, owned=last)
        assert not isinstance(result, Labels | Vector)
        held = source.result(result)
        del result
        with stages.measure("encode"):
            behind = permit.in_background
            data = await self._encoder.encode(
                held, format_, version.encoding, cost, background=behind
            )
            file = await self._files.keep(data)
            return EncodedImage(file, format_, held.width, held.height)

    async def _run(
        self,
        operation: Operation,
        image: Source,
        permit: Permit,
        stages: Timings,
        *,
        owned: bool = False,
    ) -> Result:
        job = Job(operation, image, permit.deadline, permit.lane, owned)
        completed = await self._backend.run(job)
        stages.add(completed.trace)
        return completed.result

    def _observe(self, operation: str, answer: Answer) -> None:
        outcome, code = answer.outcome, "ok"
        if isinstance(outcome, ServiceError):
            code = outcome.code
        elif isinstance(outcome, Processed):
            code = next((each.code for each in outcome.errors), "ok")
        self._observed(operation, code, [each.seconds for each in answer.all_stages])


def check_finite(found: Labels | Vector) -> Labels | Vector:
    """Return the output of a network; raise InvalidParameter if some of it is no finite number.

    Finite inputs that are far from those of photos overflow half precision.
    """
    values = found.values if isinstance(found, Vector) else np.asarray(found.scores)
    if not np.isfinite(values).all():
        raise InvalidParameter(
            "the network's output for this image is not finite: its values are too large; "
            "normalise them as the network expects"
        )
    return found
