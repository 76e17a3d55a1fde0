"""An item's bytes and pixels: fetched, decoded on codec threads, counted while they are held.

Knows no operation and no backend.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from app.admission import Permit
from app.budget import PixelBudget
from app.fetch import Fetcher
from app.intake import Item, Url
from app.silicon import DecodeChoice
from app.spool import Blob
from app.stages import Stages
from models import codec
from models.backend import Load
from models.codec import Decoded, ImageInfo
from models.deadline import Deadline
from models.errors import ServiceError

TYPICAL = (1250, 1600)
"""Height and width before the header is known, so that most images cost one hop to a thread."""

AT_ONCE = 1 << 19
"""Bytes of a JPEG that is looked at on the event loop: 0.2 ms, about what a thread would cost."""

Room = Callable[[int, int], int]
"""From an image's height and width to the pixels that count in the budget while it is held."""

T = TypeVar("T")


class Opener:
    """Fetches and decodes; its `threads` codec threads serve all requests."""

    def __init__(
        self, fetcher: Fetcher, budget: PixelBudget, max_pixels: int, threads: int
    ) -> None:
        self._fetcher = fetcher
        self._budget = budget
        self._max_pixels = max_pixels
        self._pool = ThreadPoolExecutor(threads, "codec")
        self._choice = DecodeChoice(threads)

    @asynccontextmanager
    async def opened(
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

    async def encoded(self, content: Blob, load: Load, stages: Stages) -> Decoded | None:
        """A JPEG that the device had better decode; None for what is to be decoded here."""
        if not self._choice.device_is_sooner(load):
            return None
        with stages.measure("decode"):
            if content.size > AT_ONCE or content.on_disk:
                return await self.in_thread(self._look, content)
            return self._look(content)

    @asynccontextmanager
    async def held(self, jpeg: Decoded, room: Room) -> AsyncIterator[Decoded]:
        """Room for the pixels that will come back."""
        async with self._budget.hold(room(jpeg.info.height, jpeg.info.width)):
            yield jpeg

    @asynccontextmanager
    async def decoded(self, content: Blob, stages: Stages, room: Room) -> AsyncIterator[Decoded]:
        """The pixels, and their room in the budget while the block runs."""
        async with self._budget.hold(typical := room(*TYPICAL)):
            with stages.measure("decode"):
                found = await self.in_thread(self._decode_if_within, content, room, typical)
            if isinstance(found, Decoded):
                content.close()
                yield found
                return
        async with self._budget.hold(room(found.height, found.width)):
            with stages.measure("decode"):
                decoded = await self.in_thread(self._decode, content)
            content.close()
            yield decoded

    def at_once(self, pixels: int) -> int:
        """How many jobs of so many pixels fit into memory at a time; at least one."""
        return self._budget.fitting(pixels)

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """Run on a codec thread."""
        self._choice.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)
        finally:
            self._choice.waiting -= 1

    def close(self) -> None:
        """End the codec threads; nothing may be submitted any more."""
        self._pool.shutdown()

    def _look(self, blob: Blob) -> Decoded | None:
        return codec.encoded(blob.read(), max_pixels=self._max_pixels)

    def _decode_if_within(self, blob: Blob, room: Room, held: int) -> Decoded | ImageInfo:
        """The pixels, or the header alone of an image that needs more room than was held for it."""
        info = codec.probe(blob.read(), max_pixels=self._max_pixels)
        return self._decode(blob) if room(info.height, info.width) <= held else info

    def _decode(self, blob: Blob) -> Decoded:
        started = time.monotonic()
        decoded = codec.decode(blob.read(), max_pixels=self._max_pixels)
        if decoded.info.fast_jpeg:
            self._choice.measured(time.monotonic() - started)
        return decoded
