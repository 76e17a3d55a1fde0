"""Process one image: bytes, pixels, the backend, an outcome.

Each image of a request is independent: whatever happens to it becomes its own answer. So is each
part of an image that `/process` takes apart: its labels, and each of its versions.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from app.admission import Permit
from app.decoders.messages import Seen
from app.decoders.messages import Wanted as Of
from app.decoders.pool import DecoderPool
from app.fetch.fetcher import Fetcher
from app.http.request import StreamWindow
from app.intake.item import Item, Url
from app.intake.spool import Blob
from app.intake.wanted import (
    CODEC,
    Admitted,
    ClassifyTensors,
    ImageRequest,
    Parts,
    Version,
    Wanted,
    work_on,
)
from app.pipeline.coding import BRIEFLY_READ, CodecThreads, ImageCodec, ImageContext
from app.pipeline.encoded_files import EncodedFiles
from app.pipeline.memory import (
    Memory,
    check_filters,
    frames_at_once,
    to_classify,
    to_filter,
    to_match,
    to_process,
)
from app.pipeline.outcomes import (
    Answer,
    AnswerOutcome,
    EncodedImage,
    Processed,
    Timings,
    VersionAnswer,
)
from app.telemetry.metrics import Metrics
from models.api.schemas import InfoOptions, MatchOptions
from models.codec import Decoded, claimed_pixels, pixels_of
from models.codec.costs import START
from models.domain.alarms import Timeout, interrupted
from models.domain.backend import Backend
from models.domain.errors import InternalError, InvalidParameter, ServiceError
from models.domain.image import Image, Pixels, Source
from models.domain.job import Job, Labels, Match, Vector
from workers.filters.arithmetic.colour import luma
from workers.filters.marks import check_picture, picture_of
from workers.filters.templates import TILE, matches
from workers.operations import Classify, FilterChain

if TYPE_CHECKING:  # plain servers load neither the result cache nor OpenTelemetry
    from app.pipeline.known_results import KnownResults
    from app.pipeline.spans import Spans

log = logging.getLogger("darkroom.pipeline")

T = TypeVar("T")
ItemT = TypeVar("ItemT")

_NAMES = {
    Classify: "classify",
    ClassifyTensors: "classify",
    Version: "filter",
    Parts: "process",
    InfoOptions: "info",
    MatchOptions: "match",
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
        self.files = files
        self._known = known
        self._max_pixels = max_pixels
        self._threads = CodecThreads(threads)
        self._fetcher = fetcher
        self._codec = ImageCodec(decoders, self._threads, max_pixels)
        self._backend = backend

    async def whole(self, request: ImageRequest, permit: Permit) -> list[Answer]:
        """Return the answers of all images in their order; all work ends before this call does."""
        work = partial(self.answer, wanted=request.wanted, permit=permit)
        if len(request.items) == 1:  # it needs no task
            return [await work(request.items[0])]
        async with asyncio.TaskGroup() as group:  # `gather` does not wait for cancelled work
            tasks = [group.create_task(work(each)) for each in request.items]
        return [each.result() for each in tasks]

    def answers(self, request: ImageRequest, permit: Permit) -> AsyncGenerator[Answer, None]:
        """Yield the answer of each image as it finishes; see `run`."""
        work = partial(self.answer, wanted=request.wanted, permit=permit)

        async def items() -> AsyncGenerator[Item, None]:
            for item in request.items:
                yield item

        return run(work, items(), StreamWindow(len(request.items)))

    def stream(
        self, items: AsyncGenerator[Admitted, None], wanted: Wanted, window: StreamWindow
    ) -> AsyncGenerator[Answer, None]:
        """Yield the answer of each image of a stream as it finishes; see `run`."""
        return run(partial(self._admitted, wanted), items, window, Admitted.release)

    async def _admitted(self, wanted: Wanted, each: Admitted) -> Answer:
        if each.permit is not None:
            return await self.answer(each.item, wanted, each.permit)
        assert isinstance(each.item.content, ServiceError)
        answer = Answer(each.item, each.item.content, Timings())
        self._observe(_NAMES[type(wanted)], answer)
        return answer

    async def fetched(self, items: tuple[Item, ...], permit: Permit) -> tuple[Item, ...]:
        """Return the items with the contents of all URLs, or with the errors of their fetches."""

        async def opened(item: Item) -> Item:
            if not isinstance(item.content, Url):
                return item
            content = await caught(item, permit, self._opened(item, permit, Timings()))
            return replace(item, content=content)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(opened(each)) for each in items]
        return tuple(each.result() for each in tasks)

    async def picture(self, content: Blob, permit: Permit) -> bytes:
        """Return a picture of the options, decoded within the limits of a request's images.

        A picture whose first bytes claim too many pixels is refused before it is decoded.
        """
        image = ImageContext(Item(0, content), permit, self._memory)
        try:
            check_picture(claimed_pixels(content.start(START)) or 0)
            with permit.turn(CODEC) as image.turn:
                await image.turn.take()
                held = await self._codec.decoded(content, image, attrgetter("memory"))
                return picture_of(pixels_of(held.take()).pixels)
        finally:
            image.release()
            content.close()

    async def answer(self, item: Item, wanted: Wanted, permit: Permit) -> Answer:
        """Do what is wanted of one item; an error becomes the outcome of the answer."""
        began = time.monotonic()
        image = ImageContext(item, permit, self._memory)
        outcome: AnswerOutcome
        try:
            with timeout_of(permit) as image.alarm:
                content = item.content
                if not isinstance(content, Blob):
                    content = await self._opened(item, permit, image.stages)
                try:
                    if self._known is None:
                        outcome = await self._outcome(content, wanted, image)
                    else:  # a result that is known needs no turn
                        work = partial(self._outcome, content, wanted, image)
                        outcome = await self._known.outcome(
                            content, wanted, permit, image.stages, work
                        )
                finally:
                    content.close()
        except Exception as error:
            outcome = as_outcome(error, item)
        finally:
            image.release()
        answer = Answer(item, outcome, image.stages)
        self._observe(_NAMES[type(wanted)], answer)
        if self.spans is not None:
            self.spans.image(_NAMES[type(wanted)], answer, began)
        return answer

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._threads.close()

    async def _opened(self, item: Item, permit: Permit, stages: Timings) -> Blob:
        """Return the bytes of an item, fetched if it is a URL; the caller closes them.

        Raises the error that the item may be, and those of the fetch.
        """
        content = item.content
        if isinstance(content, ServiceError):
            raise content
        if isinstance(content, Url):
            with stages.measure("fetch"):
                content = await self._fetcher.fetch(content.url, permit.deadline, permit.client)
            try:
                permit.grow(0, content.size)
            except BaseException:
                content.close()
                raise
        return content

    async def _outcome(self, content: Blob, wanted: Wanted, image: ImageContext) -> AnswerOutcome:
        """Wait for the turn of an image among all clients, then do what is wanted of it."""
        decoder = self._codec
        with image.permit.turn(work_on(content, wanted, self._max_pixels)) as image.turn:
            await image.turn.take()
            if isinstance(wanted, Version):
                return await self._filtered(content, wanted, image)
            if isinstance(wanted, Parts):
                return await self._processed(content, wanted, image)
            if isinstance(wanted, InfoOptions):
                return await decoder.described(content, image, wanted)
            if isinstance(wanted, MatchOptions):
                return await self._matched(content, wanted, image)
            if isinstance(wanted, ClassifyTensors):
                source = await decoder.tensor(content, wanted, image)
                return check_finite(await self._labels(source, wanted.operation, image))
            jpeg = await decoder.encoded(content, image.stages, self._backend.load())
            if jpeg is not None:
                return await self._labels(jpeg.image, wanted, image)
            held = await decoder.decoded(content, image, to_classify)
            return await self._labels(held.take(), wanted, image)

    async def _labels(
        self, source: Source, operation: Classify, image: ImageContext
    ) -> Labels | Vector:
        """Return the labels of an image, or the vector that is wanted instead of them."""
        permit = image.permit
        completed = await self._backend.run(Job(operation, source, permit.deadline, permit.lane))
        image.stages.add(completed.trace)
        assert isinstance(completed.result, Labels | Vector)
        return completed.result

    async def _matched(
        self, content: Blob, wanted: MatchOptions, image: ImageContext
    ) -> list[Match]:
        """Return the best places of a template. A long search has a lower priority, on threads that
        plain JPEGs do not wait for.
        """
        held = await self._codec.decoded(content, image, to_match)
        behind = image.permit.in_background or math.prod(held.shape[:2]) > TILE
        asked = wanted.template, wanted.k, wanted.threshold, image.permit.deadline
        with image.stages.measure("compute"):
            # The pixels are free when this call has ended.
            grey = await self._threads.run(luma, pixels_of(held.take()).pixels)
            return await self._threads.run(matches, grey, *asked, background=behind)

    async def _filtered(self, content: Blob, version: Version, image: ImageContext) -> EncodedImage:
        load, jpeg = self._backend.load(), None
        if version.operation.measuring is None:
            jpeg = await self._codec.encoded(content, image.stages, load)
        encoded = jpeg is not None
        on_device = encoded or load.on_gpu
        need = partial(to_filter, version, self._max_pixels, on_device=on_device, encoded=encoded)
        if jpeg is not None:
            await image.hold(need(Seen(jpeg.info, 0.0)))
            held = jpeg
        else:
            wanted = Of.FRAMES if version.encoding.frames == "all" else Of.PIXELS
            held = await self._codec.decoded(content, image, need, wanted)
        return await self._encoded(held, version, image.permit, image.stages, last=True)

    async def _processed(self, content: Blob, wanted: Parts, image: ImageContext) -> Processed:
        """Decode the image once for all parts, as many at a time as memory has room for.

        Raises the first error if no part has succeeded.
        """
        on_device = self._backend.load().on_gpu
        need = partial(to_process, wanted, self._max_pixels, self._memory, on_device=on_device)
        source = await self._codec.decoded(content, image, lambda seen: need(seen)[0])
        image.alarm.cancel()  # from here on each part has an alarm of its own
        turns = asyncio.Semaphore(need(Seen(source.info, 0.0))[1])

        async def part(work: Callable[[], Coroutine[Any, Any, T]]) -> T | ServiceError:
            async def in_turn() -> T:
                async with turns:
                    return await work()

            return await caught(image.item, image.permit, in_turn())

        async def labels() -> Labels | Vector | ServiceError | None:
            if not isinstance(wanted.labels, Classify):
                return wanted.labels
            return await part(partial(self._labels, source.image, wanted.labels, image))

        async def version(each: Version) -> VersionAnswer:
            stages = Timings()
            work = partial(self._encoded, source, each, image.permit, stages, last=False)
            return VersionAnswer(each.id, await part(work), stages)

        # If the work is cancelled, it ends after all parts, whose threads use the pixels; and no
        # local name for the future of all parts, whose error would refer to this frame.
        made: list[Any] = await asyncio.gather(
            labels(), *map(version, wanted.versions), return_exceptions=True
        )
        found = Processed(made[0], tuple(made[1:]))
        if len(found.errors) == wanted.n_parts:
            raise found.errors[0]
        return found

    async def _encoded(
        self, source: Decoded, version: Version, permit: Permit, stages: Timings, *, last: bool
    ) -> EncodedImage:
        """Put an image through the filters of a version and encode it.

        `last`: the source is not needed after the filters.
        """
        format_, on_gpu = version.format_for(source.info), self._backend.load().on_gpu
        cost = self._codec.encode_cost(source, version, format_, on_gpu=on_gpu, shared=not last)
        if version.operation.measuring is not None:
            source, version, last, limit = await self._measured(
                source, version, permit, stages, last=last
            )
            cost = self._codec.encode_cost(
                source, version, format_, on_gpu=on_gpu, shared=not last, limit=limit
            )
        operation = version.on_gpu(format_) if on_gpu else version.operation
        if source.animation is not None:
            held = await self._filtered_frames(source, operation, permit, stages)
        else:
            held = await self._run(source, operation, permit, stages, last=last)
        with stages.measure("encode"):
            (height, width, _), behind = held.shape, permit.in_background
            data, quality = await self._codec.encode(
                held, format_, version.encoding, cost, background=behind
            )
            return EncodedImage(await self.files.keep(data), format_, width, height, quality)

    async def _run(
        self,
        source: Decoded,
        operation: FilterChain,
        permit: Permit,
        stages: Timings,
        *,
        last: bool,
    ) -> Decoded:
        """Put an image through filters on the backend."""
        job = Job(
            operation,
            source.take() if last else source.image,  # without a name: the pixels have one owner
            permit.deadline,
            permit.lane,
            last,
        )
        completed = await self._backend.run(job)
        stages.add(completed.trace)
        assert not isinstance(completed.result, Labels | Vector)
        return replace(source, image=completed.result)

    async def _measured(
        self, source: Decoded, version: Version, permit: Permit, stages: Timings, *, last: bool
    ) -> tuple[Decoded, Version, bool, int]:
        """Replace each filter that measures pixels, after the filters before it have run.

        Return the image that the remaining filters take, the version with these filters, whether
        nothing else needs that image, and the bytes of memory that are left for it.
        """
        chain, seen, kept = version.operation, Seen(source.info, 0.0), math.prod(source.shape)
        limit = to_filter(version, self._max_pixels, seen, shared=not last)
        while (index := chain.measuring) is not None:
            if index:
                # After a filter that has measured, sizes may exceed those that the header foretold.
                until = FilterChain(chain.filters[: index + 1])
                check_filters(until, self._max_pixels, source.shape, limit, shared=not last)
                before = FilterChain(chain.filters[:index])
                source = await self._run(source, before, permit, stages, last=last)
                limit -= 0 if last else kept  # other parts need the source too
                last = True
            with stages.measure("compute"):
                measured = await self._threads.run(
                    chain.filters[index].measured,
                    pixels_of(source.image).pixels,  # without a name, so that they have one owner
                    background=permit.in_background,
                )
            chain = FilterChain((measured, *chain.filters[index + 1 :]))
        return source, replace(version, operation=chain), last, limit

    async def _filtered_frames(
        self, source: Decoded, operation: FilterChain, permit: Permit, stages: Timings
    ) -> Decoded:
        """Put each frame of an animation through the filters, as many at a time as memory has room
        for, and take the frames away from their source.
        """
        shape, n, image = source.shape, source.info.stack, source.take()
        assert isinstance(image, Image)
        height, width, channels = operation.shape_after(shape)
        made = np.empty((n, height, width, channels), np.uint8)
        turns = asyncio.Semaphore(frames_at_once(operation, shape, n)[0])

        async def frame(number: int, pixels: Pixels) -> None:
            async with turns:
                job = Job(operation, Image(pixels), permit.deadline, permit.lane, owned=True)
                completed = await self._backend.run(job)
                stages.add(completed.trace)
                assert isinstance(completed.result, Image)
                if made[number].nbytes <= BRIEFLY_READ:
                    made[number] = completed.result.pixels
                else:
                    await self._threads.run(np.copyto, made[number], completed.result.pixels)

        try:
            async with asyncio.TaskGroup() as group:
                for number, pixels in enumerate(image.pixels.reshape(n, *shape)):
                    group.create_task(frame(number, pixels))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return replace(source, image=Image(made.reshape(n * height, width, channels)))

    def _observe(self, operation: str, answer: Answer) -> None:
        outcome, code = answer.outcome, "ok"
        if isinstance(outcome, ServiceError):
            code = outcome.code
        elif isinstance(outcome, Processed):
            code = next((each.code for each in outcome.errors), "ok")
        self._observed(operation, code, [each.seconds for each in answer.all_stages])


def timeout_of(permit: Permit) -> Timeout:
    """Return the timeout of an image. That of a job goes on while its requests are given up: jobs
    end in their own way, which loses none of their images.
    """
    return Timeout(permit.deadline, ends_early=not permit.in_background)


async def caught(item: Item, permit: Permit, work: Coroutine[Any, Any, T]) -> T | ServiceError:
    """Await `work` until the deadline; return its result, or its error as a value."""
    try:
        with timeout_of(permit):
            return await work
    except Exception as error:
        return as_outcome(error, item)


def as_outcome(error: Exception, item: Item) -> ServiceError:
    """Return an error as the outcome of an image; a fault of ours is logged."""
    if isinstance(error, ServiceError):
        return error.with_traceback(None)  # its frames hold the pixels
    if isinstance(error, TimeoutError):
        return interrupted()
    log.error("image failed", extra={"source": item.source}, exc_info=error)
    return InternalError("an unexpected error; it has been logged")


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


async def run(
    work: Callable[[ItemT], Coroutine[Any, Any, T]],
    items: AsyncGenerator[ItemT, None],
    window: StreamWindow,
    ended: Callable[[ItemT], None] = lambda _item: None,
) -> AsyncGenerator[T, None]:
    """Yield what `work` returns for each item as it finishes, as many at a time as the window has.

    The caller iterates, so nothing starts before the first result is asked for. However the
    iteration ends, all work has ended too when the generator is closed. The next item is asked for
    when there is room for it; an item has its room until the caller asks for the result after its
    own. `ended` is called for each item, also if its work never began.
    """
    running: set[asyncio.Task[Any]] = set()
    done = asyncio.Queue[asyncio.Task[Any]]()

    def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        running.add(task)
        task.add_done_callback(done.put_nowait)
        return task

    def begin(item: ItemT) -> None:
        start(work(item)).add_done_callback(lambda _task: ended(item))

    async def read() -> None:
        while True:
            await window.room()
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            window.begin()
            begin(item)

    reading = start(read())
    try:
        while running:
            task = await done.get()
            running.discard(task)
            if task is reading:
                reading.result()
                continue
            yield task.result()
            window.end()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        # A cancelled task keeps its frames, and the frame of a stream's reader keeps both of these.
        running.clear()
        done = asyncio.Queue()
        await items.aclose()
