"""Describe image files for `POST /info`, in the processes of `app.decoders`.

EXIF and colour profiles may be hostile, so that even their readers run where they can be ended.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from app.decoders import EXPENSIVE, LARGE_FILE, DecoderPool, Seen, opening_bytes
from app.intake.spool import Blob
from app.pipeline.context import ImageContext
from app.pipeline.memory.pixel_budget import PixelBudget
from models import codec
from models.codec import Description

UNASKED = 500_000
"""Pixels of an image whose colour is looked for without asking whether there is memory for it."""


class ImageDescriber:
    """Describes files; `in_thread` does so on a machine that has no such processes."""

    def __init__(
        self,
        decoders: DecoderPool,
        budget: PixelBudget,
        max_pixels: int,
        in_thread: Callable[[Callable[[], Description]], Awaitable[Description]],
    ) -> None:
        self._decoders = decoders
        self._budget = budget
        self._max_pixels = max_pixels
        self._in_thread = in_thread

    async def described(self, content: Blob, context: ImageContext, *, colour: bool) -> Description:
        """Return what a file contains; raises the error of a file that cannot be read.

        An image that takes much time or memory waits for those before its colour is looked for.
        """
        with context.stages.measure("decode"):
            if not self._decoders.running:
                return await self._in_thread(partial(self._here, content, colour))
            opening = opening_bytes(content.size) if content.size >= LARGE_FILE else 0
            async with self._present(opening):
                found = await self._describe(content, self._is_little, colour)
            if isinstance(found, Description):
                return found
            return await self._described_in_turn(content, found, opening)

    async def _described_in_turn(self, content: Blob, seen: Seen, opening: int) -> Description:
        queues = self._decoders.queues
        codec.check_decode_memory(seen.info, seen.memory, self._decoders.limits.decode_memory)
        async with (
            self._present(max(opening, seen.memory)),
            queues.line(seen.cost),
            self._budget.hold(seen.info.n_pixels),
            queues.turn(seen.cost),
        ):
            found = await self._describe(content, lambda _seen: True, colour=True)
        assert isinstance(found, Description)
        return found

    def _present(self, memory: int) -> AbstractAsyncContextManager[None]:
        """Wait for memory, and hold it while the block runs."""
        queues = self._decoders.queues
        small = queues.is_small(memory)
        return nullcontext() if small else queues.present(memory)

    def _is_little(self, seen: Seen) -> bool:
        return seen.cost < EXPENSIVE and self._decoders.queues.is_small(seen.memory)

    async def _describe(
        self, content: Blob, accept: Callable[[Seen], bool], colour: bool
    ) -> Description | Seen:
        with content.shown() as file:
            return await self._decoders.describe(
                file, content.size, accept, colour=colour, unasked=UNASKED
            )

    def _here(self, blob: Blob, colour: bool) -> Description:
        return codec.open_file(blob.read(), max_pixels=self._max_pixels).describe(colour=colour)
