"""Take the images out of a ZIP or TAR that is a body, or a file of a form.

One member is read at a time, on a thread, into a spool of its own, so large ones go to disk and
each is checked, fails and counts as an upload does.

Each open archive needs a place, also between two pieces of its work: an open one holds up to 9 MiB
for its decompressor, and the threads are shared fairly by sharing the places.
"""

import io
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from functools import partial
from typing import BinaryIO, cast

from fastapi import Request

from app.admission import Permit
from app.admission.semaphore import FairSemaphore
from app.archives.reading import (
    SUFFIXES,
    XZ_MEMORY_OF_REQUESTS,
    Archive,
    ArchiveLimits,
    Member,
    on_thread,
    open_archive,
)
from app.intake.spool import Blob, Spool, keep
from models.domain.errors import BadArchive, MalformedRequest, ServiceError, TooLarge
from models.settings import Settings

MEDIA_TYPES = (
    "application/zip",
    "application/x-zip-compressed",
    "application/x-tar",
    "application/gzip",
    "application/x-gzip",
    "application/x-bzip2",
    "application/x-xz",
)
"""Types of bodies that are taken apart; which kind of archive it is, its first bytes say."""

ENTRIES = 100
"""Largest number of entries beside one for each image: folders, hidden files, texts."""

THREADS = 4
"""Archives of requests that one process reads at the same time."""

REQUESTS = ThreadPoolExecutor(THREADS, "archives")

PLACES = FairSemaphore(THREADS)
"""Places for the archives of requests; one client leaves at least one to the others."""

Unpacked = tuple[Blob | ServiceError, str | None]
"""The content of a member or its error, and its name."""


def is_archive(media_type: str | None, filename: str | None) -> bool:
    """Return whether a file of a form is taken apart, by its type or the end of its name."""
    return media_type in MEDIA_TYPES or bool(filename and filename.lower().endswith(SUFFIXES))


async def whole_body(request: Request, settings: Settings) -> Blob:
    """Return an archive that is the body; `app/intake/body.py` bounds its size."""
    async with Spool(settings.max_body_bytes) as spool:
        async for chunk in request.stream():
            await spool.write(chunk)
        return await spool.finish()


async def unpacked(
    packed: Blob, permit: Permit, settings: Settings, already: int
) -> list[Unpacked]:
    """Return the files in an archive, in its order, and close it.

    `already` is the number of images before them in the request; `permit` grows by their bytes. A
    member that cannot be read is an error of its own, as is what comes after a damage. Waits while
    others read as many archives as there are places. Raises BadArchive for an archive that cannot
    be read at all, TooLarge for too many images, and Overloaded.
    """
    found: list[Unpacked] = []
    most = settings.max_images_per_request
    try:
        async with PLACES.hold(permit.client), aclosing(_files(packed, settings)) as files:
            async for content, name in files:
                if already + len(found) == most:
                    raise TooLarge(
                        f"more than {most} images with those of the archive; one request takes "
                        f"{most} (DARKROOM_MAX_IMAGES_PER_REQUEST), send several or POST /jobs"
                    )
                if isinstance(content, Blob):
                    permit.grow(0, content.size)
                found.append((content, name))
    finally:
        packed.close()
    if not found:
        raise MalformedRequest("the archive has no images: only folders, links or hidden files")
    return found


async def _files(packed: Blob, settings: Settings) -> AsyncGenerator[Unpacked, None]:
    limits = ArchiveLimits(
        members=settings.max_images_per_request + ENTRIES, memory=XZ_MEMORY_OF_REQUESTS
    )
    on_archive_thread = partial(on_thread, REQUESTS, stop=limits.stop)
    with (
        _file(packed) as file,
        await on_archive_thread(partial(open_archive, file, limits)) as archive,
    ):
        members = archive.members()
        while True:
            try:
                member = await on_archive_thread(partial(next, members, None))
            except BadArchive as error:
                yield error.with_traceback(None), None
                return
            if member is None:
                return
            yield await on_archive_thread(partial(_content, archive, member, settings)), member.name


def _content(archive: Archive, member: Member, settings: Settings) -> Blob | ServiceError:
    try:
        return keep(archive.read(member, settings.max_image_bytes), settings)
    except (BadArchive, TooLarge) as error:
        return error.with_traceback(None)


@contextmanager
def _file(packed: Blob) -> Iterator[BinaryIO]:
    """Provide the archive as a seekable file; one on disk is not read into memory."""
    with packed.shown() as content:
        if isinstance(content, bytes):
            yield io.BytesIO(content)
            return
        with open(content, "rb", buffering=0, closefd=False) as file:
            yield cast(BinaryIO, file)
