"""The path of one image: bytes, pixels, the backend, an answer. Knows no HTTP.

Every image is an island: whatever happens to it becomes its own answer, never its neighbours'.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from app.admission import Permit
from app.budget import PixelBudget
from app.fetch import Fetcher
from app.intake import Item, Url
from app.metrics import Metrics
from app.silicon import DecodeChoice
from app.spool import Blob
from app.stages import Stages
from models import codec
from models.backend import Backend
from models.codec import Decoded, ImageFormat, ImageInfo
from models.deadline import Deadline
from models.errors import DeadlineExceeded, InternalError, ServiceError
from models.image import Image, Source
from models.job import Job, Labels, Operation, Result
from workers.operations import Classify, FilterChain

log = logging.getLogger("darkroom.pipeline")

TYPICAL_PIXELS = 2_000_000
"""Room held before the header is known, so that most images cost one hop to a thread, not two."""

AT_ONCE = 1 << 19
"""Bytes of a JPEG that is looked at on the event loop: 0.2 ms, about what a thread would cost."""

T = TypeVar("T")

Work = Callable[[Stages], Coroutine[Any, Any, "Labels | EncodedImage"]]
"""What is to be done for one item; the stopwatch is handed in."""


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """A filtered image as a file."""

    data: bytes
    format: ImageFormat
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Output:
    """What a filtered image is to be encoded as; `choose` gets the source's format."""

    choose: Callable[[ImageFormat], ImageFormat]
    quality: int | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one item, and where its time went."""

    item: Item
    outcome: Labels | EncodedImage | ServiceError
    stages: Stages


class Pipeline:
    """Fetches, decodes, submits and encodes; `threads` codec threads serve all requests."""

    def __init__(
        self,
        backend: Backend,
        fetcher: Fetcher,
        metrics: Metrics,
        budget: PixelBudget,
        max_pixels: int,
        threads: int,
    ) -> None:
        self._backend = backend
        self._fetcher = fetcher
        self._metrics = metrics
        self._budget = budget
        self._max_pixels = max_pixels
        self._pool = ThreadPoolExecutor(threads, "codec")
        self._choice = DecodeChoice(threads)

    async def classify(
        self, item: Item, operation: Classify, deadline: Deadline, permit: Permit
    ) -> Answer:
        """The labels of one item."""

        async def work(stages: Stages) -> Labels:
            async with self._opened(item, deadline, permit, stages) as content:
                jpeg = await self._encoded(content, stages)
                if jpeg is not None:
                    result = await self._run(operation, jpeg.image, deadline, stages)
                else:
                    async with self._decoded(content, stages) as decoded:
                        result = await self._run(operation, decoded.image, deadline, stages)
            assert isinstance(result, Labels)
            return result

        return await self._answer("classify", item, deadline, work)

    async def filter(
        self,
        item: Item,
        operation: FilterChain,
        output: Output,
        deadline: Deadline,
        permit: Permit,
    ) -> Answer:
        """One item through a chain of filters, encoded again."""

        async def work(stages: Stages) -> EncodedImage:
            async with self._opened(item, deadline, permit, stages) as content:
                jpeg = await self._encoded(content, stages) if operation.has_kernels else None
                source = self._held(jpeg) if jpeg else self._decoded(content, stages)
                async with source as decoded:
                    result = await self._run(operation, decoded.image, deadline, stages)
                    assert isinstance(result, Image)
                    with stages.measure("encode"):
                        return await self._in_thread(_encode, result, decoded, output)

        return await self._answer("filter", item, deadline, work)

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._pool.shutdown()

    async def _answer(self, operation: str, item: Item, deadline: Deadline, work: Work) -> Answer:
        stages = Stages()
        outcome: Labels | EncodedImage | ServiceError
        try:
            async with asyncio.timeout_at(deadline.alarm):
                outcome = await work(stages)
        except ServiceError as error:
            outcome = error
        except TimeoutError:
            outcome = DeadlineExceeded("the request's deadline passed")
        except Exception:  # the item's neighbours are protected from a fault of ours
            log.exception("image failed", extra={"source": item.source})
            outcome = InternalError("an unexpected error; it has been logged")
        finally:
            if isinstance(item.content, Blob):
                item.content.close()
        self._observe(operation, outcome, stages)
        return Answer(item, outcome, stages)

    def _observe(
        self, operation: str, outcome: Labels | EncodedImage | ServiceError, stages: Stages
    ) -> None:
        word = outcome.code if isinstance(outcome, ServiceError) else "ok"
        self._metrics.images.labels(operation, word).inc()
        for stage, seconds in stages.seconds.items():
            self._metrics.stages.labels(stage).observe(seconds)

    @asynccontextmanager
    async def _opened(
        self, item: Item, deadline: Deadline, permit: Permit, stages: Stages
    ) -> AsyncIterator[Blob]:
        """The item's bytes, fetched if need be; closed after the block at the latest."""
        content = item.content
        if isinstance(content, ServiceError):
            raise content
        if isinstance(content, Url):
            with stages.measure("fetch"):
                content = await self._fetcher.fetch(content.url, deadline)
        try:
            if isinstance(item.content, Url):
                permit.grow(0, content.size)
            yield content
        finally:
            content.close()

    async def _encoded(self, content: Blob, stages: Stages) -> Decoded | None:
        """A JPEG that the device had better decode; None for what is to be decoded here."""
        if not self._choice.device_is_sooner(self._backend.load()):
            return None
        with stages.measure("decode"):
            if content.size > AT_ONCE or content.on_disk:
                return await self._in_thread(self._look, content)
            return self._look(content)

    def _look(self, blob: Blob) -> Decoded | None:
        return codec.encoded(blob.read(), max_pixels=self._max_pixels)

    @asynccontextmanager
    async def _held(self, jpeg: Decoded) -> AsyncIterator[Decoded]:
        """Room for the pixels that will come back."""
        async with self._budget.hold(jpeg.info.n_pixels):
            yield jpeg

    @asynccontextmanager
    async def _decoded(self, content: Blob, stages: Stages) -> AsyncIterator[Decoded]:
        """The pixels, counted in the budget as long as the block runs."""
        async with self._budget.hold(TYPICAL_PIXELS):
            with stages.measure("decode"):
                found = await self._in_thread(self._decode_if_typical, content)
            if isinstance(found, Decoded):
                content.close()
                yield found
                return
        async with self._budget.hold(found.n_pixels):
            with stages.measure("decode"):
                decoded = await self._in_thread(self._decode, content)
            content.close()
            yield decoded

    def _decode_if_typical(self, blob: Blob) -> Decoded | ImageInfo:
        """The pixels, or the header alone of an image that needs more room than was held for it."""
        info = codec.probe(blob.read(), max_pixels=self._max_pixels)
        return self._decode(blob) if info.n_pixels <= TYPICAL_PIXELS else info

    def _decode(self, blob: Blob) -> Decoded:
        started = time.monotonic()
        decoded = codec.decode(blob.read(), max_pixels=self._max_pixels)
        if decoded.info.fast_jpeg:
            self._choice.measured(time.monotonic() - started)
        return decoded

    async def _run(
        self, operation: Operation, image: Source, deadline: Deadline, stages: Stages
    ) -> Result:
        completed = await self._backend.run(Job(operation, image, deadline))
        stages.add(completed.trace)
        return completed.result

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        self._choice.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        finally:
            self._choice.waiting -= 1


def _encode(image: Image, decoded: Decoded, output: Output) -> EncodedImage:
    format_ = output.choose(decoded.info.format)
    data = codec.encode(image, format_, quality=output.quality, copyright=decoded.copyright)
    return EncodedImage(data, format_, image.width, image.height)
