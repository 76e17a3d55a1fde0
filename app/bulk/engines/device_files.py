"""Give plain JPEGs to a GPU past the pipeline of a server, and decode here what is too many for it.

Among the images of a command there is no other client, no deadline and nothing to measure for a
scraper. What the pipeline of a server does for these takes most of the CPU time of a reader: 145 to
185 µs an image are left of 540 (two busy cores, photos of 70 kB, workers that answer at once).

The engines of an H200 decode 9,000 photos of 69 kB a second, and then most of 16 cores are idle. So
a file goes to the device while that has few of this process, else to a thread. Both take files as
fast as they can, and nothing has to be estimated.
"""

import asyncio
import logging
from collections import deque

from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import Wanted
from app.pipeline.codec_threads import CodecThreads
from app.pipeline.outcomes import Answer
from app.pipeline.timings import Timings
from app.service import Service
from models import codec
from models.domain.deadline import NEVER
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Jpeg, Source
from models.domain.job import Job, Labels, Vector
from workers.operations import Classify

log = logging.getLogger("darkroom.bulk")

DEPTH = 64
"""Files of a thread at a time, from before they are decoded until they are answered. Decoding takes
2 ms and an answer 80, so a thread with fewer than 40 would be idle at times."""

LARGEST = 1_000_000
"""Pixels of the largest file that takes this way: a thread has at most 192 MB of them. A larger one
waits for memory in the pipeline."""


class Places:
    """The places for files at the device, and those at threads.

    A file that finds none waits for the first one of either kind, behind those that came before.
    """

    def __init__(self, device: int, threads: int) -> None:
        self._free = {True: device, False: threads}
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def take(self) -> bool:
        """Wait for a place; return True for one at the device, False for one at a thread."""
        for at_device, free in self._free.items():
            if free:
                self._free[at_device] -= 1
                return at_device
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(at_device=place.result())
            raise

    def give_back(self, *, at_device: bool) -> None:
        """Give a place to the file that has waited longest."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():  # else its work was cancelled
                place.set_result(at_device)
                return
        self._free[at_device] += 1


class DeviceFiles:
    """Classifies plain JPEGs where a device decodes them; every other file is for the pipeline.

    `at_device` of the files of this process are at the device at a time, and `threads` decode.
    """

    def __init__(self, service: Service, wanted: Wanted, at_device: int, threads: int) -> None:
        settings = service.settings
        self._backend = service.backend
        self._max_pixels = settings.max_pixels
        # Known results are kept by the pipeline.
        plain = isinstance(wanted, Classify) and not settings.result_cache
        self._operation = wanted if plain and isinstance(wanted, Classify) else None
        self._places = Places(at_device, DEPTH * threads)
        self._threads = CodecThreads(threads)

    def look(self, item: Item) -> Jpeg | None:
        """Return a file that the device can decode, or None for one that the pipeline must handle.

        It takes milliseconds for large files, so call it on a thread.
        """
        content = item.content
        if self._operation is None or not isinstance(content, Blob):
            return None
        if not self._backend.load().takes_jpegs:
            return None
        try:
            found = codec.encoded(content.read(), max_pixels=self._max_pixels)
        except ServiceError:  # the pipeline answers with it
            return None
        if found is None or found.info.n_pixels > LARGEST:
            return None
        return found.image if isinstance(found.image, Jpeg) else None

    async def answer(self, item: Item, file: Jpeg) -> Answer:
        """Return the labels or the vector of a file, or the error of computing them."""
        at_device = await self._places.take()
        try:
            source = file if at_device else await self._threads.run(self._decoded, item.content)
            return Answer(item, await self._computed(source), Timings())
        except ServiceError as error:
            return Answer(item, error.with_traceback(None), Timings())
        except Exception:  # the other images of the command are protected from a fault of ours
            log.exception("image failed", extra={"source": item.source})
            fault = InternalError("an unexpected error; it has been logged")
            return Answer(item, fault, Timings())
        finally:
            self._places.give_back(at_device=at_device)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    async def _computed(self, source: Source) -> Labels | Vector:
        assert self._operation is not None
        result = (await self._backend.run(Job(self._operation, source, NEVER))).result
        assert isinstance(result, Labels | Vector)
        return result

    def _decoded(self, content: Blob) -> Source:
        opened = codec.open_plain(content.read(), max_pixels=self._max_pixels)
        assert opened is not None  # `look` has found a plain JPEG
        return opened.decode().image
