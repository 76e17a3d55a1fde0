"""The content of the items of one job: a URL, a data URI, or a member of the uploaded archive."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType

from app.archives.reading import Archive, Member, open_archive
from app.intake.item import Url
from app.intake.json_items import from_data_uri
from app.intake.spool import Blob, Spool
from app.jobs.files import ARCHIVE, MANIFEST
from app.jobs.manifest import StoredLine, data_at
from models.domain.errors import (
    BadArchive,
    InternalError,
    MalformedRequest,
    NotFound,
    ServiceError,
    TooLarge,
)
from models.settings import Settings


class Inputs:
    """Reads the items of one job; the archive is opened for the first of its members.

    `large` lets one large line of a manifest into memory at a time, of all jobs of a process.
    """

    def __init__(self, folder: Path, settings: Settings, large: asyncio.Semaphore) -> None:
        self._folder = folder
        self._settings = settings
        self._large = large
        self._archive: Archive | None = None
        self._opening = threading.Lock()

    async def content(self, line: StoredLine) -> Blob | Url | ServiceError:
        """Return the content of an item, or its error.

        Raises NotFound if the archive is missing, InternalError if it may not be read, and OSError
        if the disk fails.
        """
        if line.url is not None:
            return Url(line.url)
        if line.at is not None:
            async with self._large:
                return await self._spooled(line)
        return await self._spooled(line)

    async def _spooled(self, line: StoredLine) -> Blob | ServiceError:
        settings = self._settings
        async with Spool(settings.max_image_bytes) as spool:
            try:
                found = await asyncio.to_thread(self._read, line)
                await spool.write(found)
            except (BadArchive, MalformedRequest, TooLarge) as error:
                return error.with_traceback(None)
            return await spool.finish()

    async def __aenter__(self) -> "Inputs":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the archive, once no thread reads it any more."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._opening:
            if self._archive is not None:
                self._archive.close()
                self._archive = None

    def _read(self, line: StoredLine) -> bytes:
        most = self._settings.max_image_bytes
        if line.at is not None:
            return from_data_uri(data_at(self._folder / MANIFEST, line.at))
        if line.member is None:
            return from_data_uri(line.data or "")
        with self._opening:
            if self._archive is None:
                self._archive = self._opened()
            archive = self._archive
        index, size, place = line.member
        return archive.read(Member(index, line.path or "", size, place), most)

    def _opened(self) -> Archive:
        try:
            return open_archive(self._folder / ARCHIVE)
        except FileNotFoundError:
            if not (self._folder / MANIFEST).exists():  # the disk may be gone, with all jobs
                raise
            text = "the archive of the job is not in the data folder any more"
            raise NotFound(text) from None
        except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
            text = f"the archive of the job cannot be read: {error.strerror}"
            raise InternalError(text) from None
