"""Decode image files: plain baseline JPEGs on codec threads, others in decoder processes.

A file may be asked for several times, because its image may have to wait for memory in between.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from app.decoders import LARGE_FILE, DecoderPool, Seen
from app.intake.spool import Blob
from app.pipeline.typical_image import MAGIC, decoded_unasked
from models import codec
from models.codec import Decoded, ImageFormat, identify

Accept = Callable[[Seen], bool]
"""Decide by the header of an image whether it is decoded now."""

Found = Decoded | Seen
"""A decoded image, or the header of one that was not accepted."""


class FileDecoder:
    """Decodes in the processes of `decoders`, and by `in_thread` what takes little time.

    Files in the background hold `processes_behind` while they use a process, which leaves one for
    others. `measured` is told the seconds that a thread took for a JPEG.
    """

    def __init__(
        self,
        decoders: DecoderPool,
        max_pixels: int,
        in_thread: Callable[..., Awaitable[Any]],
        processes_behind: asyncio.Semaphore,
        measured: Callable[[float], None],
    ) -> None:
        self.decoders = decoders
        self.in_thread = in_thread
        self.processes_behind = processes_behind
        self._max_pixels = max_pixels
        self._measured = measured

    def plain(self, blob: Blob, accept: Accept) -> Found | None:
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
        self._measured(time.monotonic() - started)
        return decoded

    def any_file(self, blob: Blob, accept: Accept) -> Found:
        """Decode a file of any format, on a machine without decoder processes."""
        started = time.monotonic()
        opened = codec.open_file(blob.read(), max_pixels=self._max_pixels)
        seen = Seen(opened.info, opened.cost, opened.memory)
        if not accept(seen):
            return seen
        decoded = opened.decode()
        if opened.info.fast_jpeg:
            self._measured(time.monotonic() - started)
        return decoded


class Decoding:
    """The decoding of one file by `files`, in the background if `behind`; it remembers whether a
    thread can do it.

    Only decoding shows that a JPEG is damaged. No thread decodes it a second time when it has
    waited for the memory that a process takes.
    """

    __slots__ = ("_behind", "_content", "_files", "_may_be_plain")

    def __init__(self, files: FileDecoder, content: Blob, *, behind: bool) -> None:
        self._files = files
        self._content = content
        self._behind = behind
        self._may_be_plain = True

    async def __call__(self, accept: Accept, *, large: bool = True) -> Found | None:
        """Return the image if `accept` agrees, else its header; raises the error of a bad file.

        Unless `large`, return None for a large file that a process would open.
        """
        files, content = self._files, self._content
        in_thread = partial(files.in_thread, background=self._behind)
        if not files.decoders.running:
            whole: Found = await in_thread(files.any_file, content, accept)
            return whole
        # A file on disk is only read on a thread.
        if (
            self._may_be_plain
            and identify(content.start(MAGIC)) is ImageFormat.JPEG
            and (content.on_disk or codec.may_be_baseline(content.read()))
        ):
            found: Found | None = await in_thread(files.plain, content, accept)
            if found is not None:
                return found
        self._may_be_plain = False
        if not large and content.size >= LARGE_FILE:
            return None
        unasked = decoded_unasked(accept, content)
        async with AsyncExitStack() as held:
            if self._behind:
                await held.enter_async_context(files.processes_behind)
            file = held.enter_context(content.shown())
            return await files.decoders.decode(file, content.size, accept, unasked)
