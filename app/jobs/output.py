"""Write the images of a job into a folder or bucket of its own, as `images/NAME.SUFFIX`.

The manifest has the name of each item, so an image that is made again, because the process was
killed before its record was kept, replaces itself.
"""

from collections.abc import AsyncIterator
from contextlib import suppress

from app.http.problems import problem
from app.pipeline.results.encoded_files import EncodedFile
from app.pipeline.results.outcomes import Answer
from app.storage.storage import Storage
from models.api.schemas import FilteredImage, Record
from models.domain.errors import AddressRefused, NotFound, ServiceError
from models.domain.job_errors import StorageFull

IMAGES, RESULTS = "images", "results.jsonl"
"""The folder of images and the file of records below a destination."""

PIECE = 1 << 20
"""Bytes of an image that are in memory, beside those that the pipeline holds."""


class ImageOutput:
    """Writer of the images of jobs that have a destination."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def write(self, target: str, answer: Answer, made: Record) -> Record:
        """Write the images of an answer under the names in its record, below `images/`.

        An item whose image cannot be written becomes an error. Raises StorageFull where the disk is
        full, because no other image of the job could be written either.
        """
        try:
            folder = self._storage.writable(target)
            files = [file for _, file in answer.images]
            for shown, file in zip(_shown(made), files, strict=True):
                shown.name = f"{IMAGES}/{shown.name}"
                await self._storage.write(folder.below(shown.name), _content(file.file))
        except StorageFull:
            raise
        except ServiceError as error:
            found = problem(error, None, made.index)
            return Record(
                index=made.index, id=made.id, source=made.source, status="error", error=found
            )
        return made

    async def check(self, target: str) -> None:
        """Raise InvalidParameter if a file is where the images or the results must have a folder.

        Without it, every chunk of such a job would be computed in vain. Raises AddressRefused and
        OriginFailed too.
        """
        await self._storage.check_folder(self._storage.writable(target).below(IMAGES))

    async def settle(self, target: str) -> None:
        """Let the images that were written survive a power failure.

        Raises OriginFailed and StorageFull. Call it before their records count. Where none was
        written, there is nothing to do.
        """
        with suppress(AddressRefused, NotFound):
            await self._storage.settle(self._storage.writable(target).below(IMAGES))


def _shown(made: Record) -> list[FilteredImage]:
    """Return the images of a record, in the order of its answer."""
    every = (made.image, *(each.image for each in made.versions or ()))
    return [each for each in every if each is not None]


def _content(file: EncodedFile) -> bytes | AsyncIterator[bytes]:
    return file.read() if file.size <= PIECE else _pieces(file)


async def _pieces(file: EncodedFile) -> AsyncIterator[bytes]:
    for start in range(0, file.size, PIECE):
        yield file.read(start, PIECE)
