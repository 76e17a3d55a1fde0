"""Fetch and decode the image of an item, and count its pixels while they are in memory.

`file_decoder.py` decodes; here an image waits for what that needs. Nothing here depends on an
operation or a backend.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from app.admission import Permit
from app.decoders import EXPENSIVE, DecoderPool, Seen, opening_bytes
from app.fetch.fetcher import Fetcher
from app.intake.item import Item
from app.intake.spool import Blob
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import ImageContext
from app.pipeline.decode_placement import DecodePlacement
from app.pipeline.decode_stalls import DecodeStalls
from app.pipeline.decode_turn import Decode, Memory, Room, in_turn
from app.pipeline.file_decoder import Accept, Decoding, FileDecoder, Found
from app.pipeline.memory.held_image import HeldImage
from app.pipeline.memory.pixel_budget import PixelBudget
from app.pipeline.results.timings import Timings
from app.pipeline.typical_image import TYPICAL_JPEG
from models import codec
from models.codec import Decoded
from models.domain.backend import Load
from models.domain.errors import ServiceError

AT_ONCE = 1 << 19
"""Largest JPEG, in bytes, that is scanned on the event loop: 0.2 ms, about the cost of a thread."""

T = TypeVar("T")


class ImageDecoder:
    """Fetches and decodes; its `threads` codec threads serve all requests, as many others jobs."""

    def __init__(
        self,
        fetcher: Fetcher,
        budget: PixelBudget,
        decoders: DecoderPool,
        max_pixels: int,
        threads: int,
    ) -> None:
        self._fetcher = fetcher
        self._decoders = decoders
        self._budget = budget
        self._max_pixels = max_pixels
        self._threads = CodecThreads(threads)
        self._behind = CodecThreads(threads, background=True)
        self.processes_behind = asyncio.Semaphore(max(1, threads - 1))
        self._choice = DecodePlacement(threads)
        self._files = FileDecoder(
            decoders, max_pixels, self.in_thread, self.processes_behind, self._choice.measured
        )
        self.stalls = DecodeStalls()

    async def opened(self, item: Item, permit: Permit, stages: Timings) -> Blob:
        """Return the bytes of an item, fetched if it is a URL; the caller closes them.

        Raises the error that the item may be, and those of the fetch.
        """
        content = item.content
        if isinstance(content, Blob):
            return content
        if isinstance(content, ServiceError):
            raise content
        with stages.measure("fetch"):
            fetched = await self._fetcher.fetch(content.url, permit.deadline, permit.fetches_for)
        try:
            permit.grow(0, fetched.size)
        except BaseException:
            fetched.close()
            raise
        return fetched

    async def encoded(self, content: Blob, load: Load, stages: Timings) -> Decoded | None:
        """Return a JPEG that the device will decode, or None for a file to be decoded here."""
        if not self._choice.device_is_sooner(load):
            return None
        with stages.measure("decode"):
            if content.size > AT_ONCE or content.on_disk:
                return await self.in_thread(self._look, content)
            return self._look(content)

    @asynccontextmanager
    async def held(
        self, jpeg: Decoded, context: ImageContext, room: Room, memory: Memory
    ) -> AsyncIterator[HeldImage]:
        """Hold room and memory for the pixels that will come back, while the block runs."""
        async with AsyncExitStack() as held:
            await self._present(held, memory(Seen(jpeg.info, 0.0)), context)
            await held.enter_async_context(self._budget.hold(room(Seen(jpeg.info, 0.0))))
            yield HeldImage(jpeg)

    @asynccontextmanager
    async def decoded(
        self, content: Blob, context: ImageContext, room: Room, memory: Memory
    ) -> AsyncIterator[HeldImage]:
        """Decode an image, and hold the room for its pixels while the block runs.

        An image that takes much time or memory waits for those first, and holds no room meanwhile.
        Raises TooManyPixels for one whose decoding would take more memory than is allowed.
        """
        stages = context.stages
        decode: Decode = Decoding(self._files, content, behind=context.permit.in_background)
        if self.stalls.call is not None:
            decode = partial(self._counted, decode)
        async with self._budget.hold(typical := room(TYPICAL_JPEG)):

            def fits(seen: Seen) -> bool:
                within = room(seen) <= typical
                little = seen.cost < EXPENSIVE and self._decoders.queues.is_small(memory(seen))
                return within and little and seen.memory <= self._decoders.limits.decode_memory

            with stages.measure("decode"):
                found = await decode(fits, large=False)
            if isinstance(found, Decoded):
                content.close()
                image = HeldImage(found)
                del found  # or it would stay as long as this frame
                yield image
                return
        async with AsyncExitStack() as held:
            turn = partial(self._turn, context, room, memory, held)
            with stages.measure("decode"):
                made = None
                if found is not None:
                    made = await in_turn(found, decode, turn, held, large=False)
                if made is None:
                    made = await self._large(content, decode, context, room, memory, held)
                image = HeldImage(made)
                del made  # or its pixels would stay as long as this frame
            content.close()
            yield image

    def at_once(self, pixels: int, memory: int) -> int:
        """Return how many jobs of these pixels and bytes fit at a time, at least one."""
        return self._decoders.queues.at_once(memory, self._budget.fitting(pixels))

    async def in_thread(
        self, function: Callable[..., T], *args: object, background: bool = False
    ) -> T:
        """Run a function on a codec thread, or on one of the background; return its result."""
        if background:
            return await self._behind.run(function, *args)
        self._choice.waiting += 1
        try:
            return await self._threads.run(function, *args)
        finally:
            self._choice.waiting -= 1

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._threads.close()
        self._behind.close()

    @asynccontextmanager
    async def _turn(
        self, context: ImageContext, room: Room, memory: Memory, held: AsyncExitStack, seen: Seen
    ) -> AsyncIterator[None]:
        """Wait until an image may be decoded; `held` keeps its room and memory."""
        codec.check_decode_memory(seen.info, seen.memory, self._decoders.limits.decode_memory)
        async with AsyncExitStack() as turn:
            with self.stalls.waiting():
                await self._present(held, memory(seen), context)
                await turn.enter_async_context(self._decoders.queues.line(seen.cost))
                await held.enter_async_context(self._budget.hold(room(seen)))
                await turn.enter_async_context(self._decoders.queues.turn(seen.cost))
            yield

    async def _large(
        self,
        content: Blob,
        decode: Decode,
        context: ImageContext,
        room: Room,
        memory: Memory,
        held: AsyncExitStack,
    ) -> Decoded:
        """Decode a large file, which waits for the memory of opening it before its header is read.

        It keeps that memory in `held`.
        """
        opening = opening_bytes(content.size)
        await held.aclose()
        async with AsyncExitStack() as opened:
            with self.stalls.waiting():
                await self._present(opened, opening, context)
            found = await decode(lambda _seen: False)
        assert isinstance(found, Seen)
        turn = partial(self._turn, context, room, lambda seen: max(opening, memory(seen)), held)
        decoded = await in_turn(found, decode, turn, held, large=True)
        assert decoded is not None
        return decoded

    async def _present(self, held: AsyncExitStack, memory: int, context: ImageContext) -> None:
        """Wait for memory, and hold it as long as `held`; others have the turn meanwhile."""
        queues = self._decoders.queues
        if not queues.is_small(memory):
            await held.enter_async_context(queues.present(memory, context.turn.left))

    def _look(self, blob: Blob) -> Decoded | None:
        return codec.encoded(blob.read(), max_pixels=self._max_pixels)

    async def _counted(self, decode: Decode, accept: Accept, *, large: bool = True) -> Found | None:
        """Decode, counted among the images that are being decoded, which costs four calls."""
        self.stalls.begin()
        try:
            return await decode(accept, large=large)
        finally:
            self.stalls.end()
