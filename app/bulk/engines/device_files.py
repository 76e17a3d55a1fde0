"""Give plain JPEGs to a GPU as they are, past the pipeline of a server.

Among the images of a command there is no other client, no deadline and nothing to measure for a
scraper. What the pipeline of a server does for these takes three quarters of the CPU time of a
reader: 350 of 460 µs an image (two busy cores, photos of 70 kB, workers that answer at once).
"""

import logging

from app.intake.item import Item
from app.intake.spool import Blob
from app.intake.wanted import Wanted
from app.pipeline.results.outcomes import Answer
from app.pipeline.results.timings import Timings
from app.service import Service
from models import codec
from models.domain.deadline import NEVER
from models.domain.errors import InternalError, ServiceError
from models.domain.image import Source
from models.domain.job import Job, Labels, Vector
from workers.operations import Classify

log = logging.getLogger("darkroom.bulk")


class DeviceFiles:
    """Classifies files on the device that decodes them; every other file is for the pipeline."""

    def __init__(self, service: Service, wanted: Wanted) -> None:
        self._backend = service.backend
        self._max_pixels = service.settings.max_pixels
        # Known results are kept by the pipeline.
        plain = isinstance(wanted, Classify) and not service.settings.result_cache
        self._operation = wanted if plain and isinstance(wanted, Classify) else None

    def look(self, item: Item) -> Source | None:
        """Return a file that the device decodes, or None for one that the pipeline must handle.

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
        return None if found is None else found.image

    async def answer(self, item: Item, source: Source) -> Answer:
        """Return the labels or the vector of a file, or the error of computing them."""
        assert self._operation is not None
        try:
            result = (await self._backend.run(Job(self._operation, source, NEVER))).result
        except ServiceError as error:
            return Answer(item, error.with_traceback(None), Timings())
        except Exception:  # the other images of the command are protected from a fault of ours
            log.exception("image failed", extra={"source": item.source})
            return Answer(item, InternalError("an unexpected error; it has been logged"), Timings())
        assert isinstance(result, Labels | Vector)
        return Answer(item, result, Timings())
