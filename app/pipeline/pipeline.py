"""Process one image: bytes, pixels, the backend, an outcome.

Each image of a request is independent: whatever happens to it becomes its own answer. So is each
part of an image that `/process` takes apart: its labels, and each of its versions.
"""

import operator
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app.admission import Permit
from app.decoders import DecoderPool, Seen
from app.fetch.fetcher import Fetcher
from app.http.request import StreamWindow
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
    kinds,
    known_pixels,
)
from app.pipeline.computation import Computation
from app.pipeline.context import ExpectedPixels, ImageContext, alarm_of, caught
from app.pipeline.decoding import ImageDecoder
from app.pipeline.describing import ImageDescriber
from app.pipeline.encoding import ImageEncoder
from app.pipeline.memory.held_image import HeldImage
from app.pipeline.memory.memory_need import PartsNeed, peak_pixels, to_classify, to_filter
from app.pipeline.memory.pixel_budget import PixelBudget
from app.pipeline.parts import PartsOfImage
from app.pipeline.results.encoded_files import EncodedFiles
from app.pipeline.results.outcomes import Answer, AnswerOutcome, EncodedImage, Processed
from app.pipeline.results.spans import Spans
from app.pipeline.results.timings import Timings
from app.pipeline.runner import Left, run, run_window
from app.pipeline.tensors import TensorClassifier
from app.telemetry.metrics import Metrics
from models.domain.backend import Backend
from models.domain.errors import ServiceError
from models.domain.job import Labels, Vector
from workers.operations import Classify

if TYPE_CHECKING:  # servers without a result cache do not load it
    from app.pipeline.results.known_results import KnownResults

_NAMES = {
    Classify: "classify",
    ClassifyTensors: "classify",
    Version: "filter",
    Parts: "process",
    Describe: "info",
}
"""The label of each kind of request in metrics."""


def _own_pixels(seen: Seen) -> int:
    return seen.info.n_pixels


class Pipeline:
    """Fetch, decode, compute and encode; `threads` codec threads serve all requests."""

    def __init__(
        self,
        backend: Backend,
        fetcher: Fetcher,
        metrics: Metrics,
        budget: PixelBudget,
        decoders: DecoderPool,
        files: EncodedFiles,
        known: "KnownResults | None",
        max_pixels: int,
        threads: int,
        spans: Spans | None = None,
    ) -> None:
        self.spans = spans
        """Makes the spans of traces, or None if there are none."""
        self._observed = metrics.observations.image
        self._files = files
        self._known = known
        self._max_pixels = max_pixels
        self._decoder = ImageDecoder(fetcher, budget, decoders, max_pixels, threads)
        self.stalls, in_thread = self._decoder.stalls, self._decoder.in_thread
        self._describer = ImageDescriber(decoders, budget, max_pixels, in_thread)
        encoder = ImageEncoder(decoders, in_thread, self._decoder.processes_behind)
        self._computation = Computation(backend, encoder, files, max_pixels)
        self._tensors = TensorClassifier(decoders, budget, in_thread, self._computation)

    def answers(
        self, request: ImageRequest, permit: Permit, left: Left
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
        self, items: tuple[Item, ...], permit: Permit, left: Left
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
        pixels = ExpectedPixels(self._max_pixels, known_pixels(wanted))
        batched = isinstance(wanted, Classify | ClassifyTensors)  # filters do not fill batches
        turn = permit.turn(kinds(wanted), pixels, batched=batched)
        context = ImageContext(item, permit, Timings(), alarm_of(permit), turn, pixels)
        outcome = await caught(item, context.alarm, self._outcome(context, wanted))
        turn.end()
        answer = Answer(item, outcome, context.stages)
        self._observe(_NAMES[type(wanted)], answer)
        if self.spans is not None:
            self.spans.image(_NAMES[type(wanted)], answer, began)
        return answer

    def on_stall(self, call: Callable[[], None] | None) -> None:
        """Call this when batches wait in vain for further images, as `DecodeStalls` says."""
        self.stalls.call = call

    def set_unread_limit(self, limit: int) -> None:
        """Bound the bytes of answers that their clients have not read, from now on."""
        self._files.set_limit(limit)

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._decoder.close()
        self._files.close()

    async def _outcome(self, context: ImageContext, wanted: Wanted) -> AnswerOutcome:
        """Open the item, wait for its turn among all clients, then do what is wanted.

        A result that is known already needs no turn.
        """
        permit = context.permit
        content = await self._decoder.opened(context.item, permit, context.stages)
        context.pixels.content = content
        try:
            known = self._known
            if known is None:
                async with context.turn:
                    return await self._computed(content, wanted, context)
            key = await known.key(content, wanted, permit.fetches_for)
            if key is not None and (found := known.known(key, context.stages)) is not None:
                return found
            async with context.turn:
                if key is None:
                    return await self._computed(content, wanted, context)
                work = partial(self._computed, content, wanted, context)
                lane, turn, stages = permit.lane, context.turn, context.stages
                return await known.once(key, lane, turn, stages, work)
        finally:
            content.close()

    async def _computed(
        self, content: Blob, wanted: Wanted, context: ImageContext
    ) -> AnswerOutcome:
        if isinstance(wanted, Classify):
            return await self._classified(content, wanted, context)
        if isinstance(wanted, Version):
            return await self._filtered(content, wanted, context)
        if isinstance(wanted, ClassifyTensors):
            return await self._tensors.classified(content, wanted, context)
        if isinstance(wanted, Describe):
            return await self._describer.described(content, context, colour=wanted.colour)
        return await self._processed(content, wanted, context)

    async def _classified(
        self, content: Blob, operation: Classify, context: ImageContext
    ) -> Labels | Vector:
        permit, stages = context.permit, context.stages
        jpeg = await self._decoder.encoded(content, self._computation.load(), stages)
        if jpeg is not None:
            return await self._computation.labels(HeldImage(jpeg), operation, permit, stages)
        source = self._decoder.decoded(content, context, _own_pixels, to_classify)
        async with source as image:
            labels = self._computation.labels
            return await labels(image, operation, permit, stages, last=True)

    async def _filtered(
        self, content: Blob, version: Version, context: ImageContext
    ) -> EncodedImage:
        decoder, permit, stages = self._decoder, context.permit, context.stages
        load = self._computation.load()
        jpeg = await decoder.encoded(content, load, stages)
        most, encoded = self._max_pixels, jpeg is not None

        def needed(seen: Seen) -> int:
            return peak_pixels(version.operation, most, seen.info.height, seen.info.width)

        on_device = encoded or load.on_gpu
        memory = partial(to_filter, version, most, on_device=on_device, encoded=encoded)
        source = (
            decoder.held(jpeg, needed, memory)
            if jpeg
            else decoder.decoded(content, context, needed, memory)
        )
        async with source as image:
            return await self._computation.filtered(image, version, permit, stages, last=True)

    async def _processed(self, content: Blob, wanted: Parts, context: ImageContext) -> Processed:
        """Decode the image once for all parts, as many at a time as memory has room for."""
        on_device = self._computation.load().on_gpu
        need = PartsNeed(wanted, self._max_pixels, self._decoder.at_once, on_device=on_device)
        async with self._decoder.decoded(content, context, need.pixels, need.memory) as image:
            context.alarm.stop()  # from here on each part has an alarm of its own
            parts = PartsOfImage(self._computation, image, context, need.parts)
            return await parts.all_of(wanted)

    def _observe(self, operation: str, answer: Answer) -> None:
        outcome, code = answer.outcome, "ok"
        if isinstance(outcome, ServiceError):
            code = outcome.code
        elif isinstance(outcome, Processed):
            code = next((each.code for each in outcome.errors), "ok")
        self._observed(operation, code, [each.seconds for each in answer.all_stages])
