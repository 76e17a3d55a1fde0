"""Fetch and decode the image of an item, and hold what its pixels take while they are in memory.

Codec threads decode plain baseline JPEGs, and decoder processes all other files. An image is
decoded when its header shows that it takes no more than it was granted; otherwise it waits for
what it takes, and is asked for again. Nothing here depends on an operation or a backend.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, TypeVar

from app.admission import Permit
from app.decoders import EXPENSIVE, LARGE_FILE, DecoderPool, Seen, Unasked, opening_bytes
from app.fetch.fetcher import Fetcher
from app.intake.item import Item
from app.intake.spool import Blob
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.context import ImageContext
from app.pipeline.decode_placement import DecodePlacement
from app.pipeline.decode_stalls import DecodeStalls
from app.pipeline.memory.held_image import HeldImage
from app.pipeline.memory.pixel_budget import PixelBudget
from app.pipeline.results.timings import Timings
from models import codec
from models.codec import Decoded, ImageFormat, ImageInfo, identify
from models.domain.backend import Load
from models.domain.errors import ServiceError

AT_ONCE = 1 << 19
"""Largest JPEG, in bytes, that is scanned on the event loop: 0.2 ms, about the cost of a thread."""

MAGIC = 16
"""Number of bytes that distinguish a JPEG from other formats."""

TYPICAL = (1250, 1600)
"""Height and width of the image that is assumed before a header is read, so that most images need
only one hand-over to a thread or a process."""

T = TypeVar("T")

Accept = Callable[[Seen], bool]
"""Decide by the header of an image whether it is decoded now."""

Room = Callable[[Seen], int]
Memory = Callable[[Seen], int]
"""Map a header: `Room` to the pixels that are taken from the budget, `Memory` to the most bytes."""


class Grant(NamedTuple):
    """What an image may take: pixels of the budget, bytes of memory, CPU seconds of decoding."""

    pixels: int
    memory: int = 0
    cost: float = 0.0


def typical_image(format_: ImageFormat, mode: str, size: int = 0) -> Seen:
    """Return the header of the assumed image in a file of `size` bytes."""
    info = ImageInfo(format_, TYPICAL[1], TYPICAL[0], 1, 1, mode, fast_jpeg=False)
    return Seen(info, 0.0, codec.decode_memory(info, size))


TYPICAL_JPEG = typical_image(ImageFormat.JPEG, "RGB")


def unasked(accept: Accept, content: Blob) -> Unasked:
    """Return the pixels of the typical image if it is accepted: a process decodes an image of no
    more pixels before it asks.
    """
    format_ = identify(content.start(MAGIC)) or ImageFormat.PNG

    def most(mode: str) -> int:
        seen = typical_image(format_, mode, content.size)
        return seen.info.n_pixels if accept(seen) else 0

    return Unasked(most("RGB"), most("RGBA"))


class _File:
    """A file on its way: its content, the bytes granted for opening it in a process, and whether it
    may be a plain JPEG. Only decoding shows damage, and no thread decodes a damaged JPEG twice.
    """

    __slots__ = ("content", "may_be_plain", "opening")

    def __init__(self, content: Blob) -> None:
        self.content = content
        self.opening = 0
        self.may_be_plain = True


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
    async def held(self, jpeg: Decoded, room: Room, memory: Memory) -> AsyncIterator[HeldImage]:
        """Hold room and memory for the pixels that will come back, while the block runs."""
        async with AsyncExitStack() as held:
            await self._present(held, memory(Seen(jpeg.info, 0.0)))
            await held.enter_async_context(self._budget.hold(room(Seen(jpeg.info, 0.0))))
            yield HeldImage(jpeg)

    @asynccontextmanager
    async def decoded(
        self, content: Blob, context: ImageContext, room: Room, memory: Memory
    ) -> AsyncIterator[HeldImage]:
        """Decode an image, and hold the room for its pixels while the block runs.

        An image that takes much time or memory waits for those first, and holds no room meanwhile.
        Raises TooManyPixels for an image whose decoding would take more memory than is allowed.
        """
        async with AsyncExitStack() as held:
            with context.stages.measure("decode"):
                # No local name for the pixels: they would stay as long as this frame.
                image = HeldImage(await self._decoded(content, context, room, memory, held))
            content.close()
            yield image

    async def _decoded(
        self, content: Blob, context: ImageContext, room: Room, memory: Memory, held: AsyncExitStack
    ) -> Decoded:
        """Ask for an image until it takes no more than it was granted, which `held` keeps."""
        file, granted = _File(content), Grant(room(TYPICAL_JPEG))
        behind, limit = context.permit.in_background, self._decoders.limits.decode_memory
        small = self._decoders.queues.is_small

        def accept(seen: Seen) -> bool:
            if room(seen) > granted.pixels or seen.memory > limit:
                return False
            needed = memory(seen)
            within = needed <= granted.memory or small(needed)
            return within and (seen.cost < EXPENSIVE or seen.cost <= granted.cost)

        await held.enter_async_context(self._budget.hold(granted.pixels))
        found = await self._attempt(file, accept, behind=behind)
        while not isinstance(found, Decoded):
            await held.aclose()
            if found is None:
                file.opening = opening_bytes(content.size)
                granted = granted._replace(memory=file.opening)
            else:
                codec.check_decode_memory(found.info, found.memory, limit)
                granted = Grant(room(found), max(file.opening, memory(found)), found.cost)
            async with AsyncExitStack() as turn:
                await self._wait(granted, held, turn)
                found = await self._attempt(file, accept, behind=behind)
        return found

    async def _wait(self, granted: Grant, held: AsyncExitStack, turn: AsyncExitStack) -> None:
        """Wait for what is granted: `held` keeps room and memory, `turn` the turn to decode."""
        queues = self._decoders.queues
        with self.stalls.waiting():
            await self._present(held, granted.memory)
            await turn.enter_async_context(queues.line(granted.cost))
            await held.enter_async_context(self._budget.hold(granted.pixels))
            await turn.enter_async_context(queues.turn(granted.cost))

    async def _attempt(self, file: _File, accept: Accept, *, behind: bool) -> Decoded | Seen | None:
        """Return the image if `accept` agrees, else its header; raises the error of a bad file.

        Return None for a large file that a process would open before memory for that is granted.
        """
        self.stalls.begin()
        try:
            content = file.content
            if not self._decoders.running:
                return await self.in_thread(self._any_file, content, accept, background=behind)
            # A file on disk is only read on a thread.
            if (
                file.may_be_plain
                and identify(content.start(MAGIC)) is ImageFormat.JPEG
                and (content.on_disk or codec.may_be_baseline(content.read()))
            ):
                found = await self.in_thread(self._plain, content, accept, background=behind)
                if found is not None:
                    return found
            file.may_be_plain = False
            if content.size >= LARGE_FILE and not file.opening:
                return None
            bounds = unasked(accept, content)
            async with AsyncExitStack() as shown:
                if behind:
                    await shown.enter_async_context(self.processes_behind)
                descriptor = shown.enter_context(content.shown())
                return await self._decoders.decode(descriptor, content.size, accept, bounds)
        finally:
            self.stalls.end()

    def _plain(self, blob: Blob, accept: Accept) -> Decoded | Seen | None:
        """Decode a plain baseline JPEG; return None for any other file, and for a damaged one."""
        started = time.monotonic()
        opened = codec.open_plain(blob.read(), max_pixels=self._max_pixels)
        if opened is None:
            return None
        # Its cost is bounded by its pixels, so it never waits for a turn.
        memory = codec.decode_memory(opened.info, blob.size, plain_jpeg=True)
        seen = Seen(opened.info, 0.0, memory)
        if not accept(seen):
            return seen
        decoded = opened.decode_plain()
        self._choice.measured(time.monotonic() - started)
        return decoded

    def _any_file(self, blob: Blob, accept: Accept) -> Decoded | Seen:
        """Decode a file of any format, on a machine without decoder processes."""
        started = time.monotonic()
        opened = codec.open_file(blob.read(), max_pixels=self._max_pixels)
        seen = Seen(opened.info, opened.cost, opened.memory)
        if not accept(seen):
            return seen
        decoded = opened.decode()
        if opened.info.fast_jpeg:
            self._choice.measured(time.monotonic() - started)
        return decoded

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

    async def _present(self, held: AsyncExitStack, memory: int) -> None:
        """Wait for memory, and hold it as long as `held`."""
        queues = self._decoders.queues
        if not queues.is_small(memory):
            await held.enter_async_context(queues.present(memory))

    def _look(self, blob: Blob) -> Decoded | None:
        return codec.encoded(blob.read(), max_pixels=self._max_pixels)
