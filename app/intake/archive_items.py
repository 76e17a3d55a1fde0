"""Take the images out of a ZIP or TAR that is a body, or a file of a form.

One member is read at a time, on a thread, into a spool of its own, so large ones go to disk and
each is checked, fails and counts as an upload does.

Each open archive needs a place, also between two pieces of its work: an open one holds up to 9 MiB
for its decompressor, and the threads are shared fairly by sharing the places.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

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
from app.intake.item import Found
from app.intake.spool import Blob, keep
from models.domain.errors import BadArchive, MalformedRequest, TooLarge
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


def is_archive(media_type: str | None, filename: str | None) -> bool:
    """Return whether a file of a form is taken apart, by its type or the end of its name."""
    return media_type in MEDIA_TYPES or bool(filename and filename.lower().endswith(SUFFIXES))


async def images_of(
    packed: Blob, permit: Permit, settings: Settings, already: int = 0
) -> list[Found]:
    """Return the files in an archive, in its order, and close it.

    `already` is the number of images before them in the request; `permit` grows by their bytes. A
    member that cannot be read is an error of its own, as is what comes after a damage. Waits while
    other requests read as many archives as there are places. Raises BadArchive for an archive that
    cannot be read at all, TooLarge for too many images, and Overloaded.
    """
    found: list[Found] = []
    most = settings.max_images_per_request
    limits = ArchiveLimits(members=most + ENTRIES, memory=XZ_MEMORY_OF_REQUESTS)
    on_archive_thread = partial(on_thread, REQUESTS, stop=limits.stop)
    try:
        async with PLACES.hold(permit.client):
            with (
                packed.opened() as file,
                await on_archive_thread(partial(open_archive, file, limits)) as archive,
            ):
                unpacking = partial(_next, archive, archive.members(), settings)
                while (each := await on_archive_thread(unpacking)) is not None:
                    if already + len(found) == most:
                        raise TooLarge(
                            f"more than {most} images with those of the archive; one request takes "
                            f"{most} (DARKROOM_MAX_IMAGES_PER_REQUEST), send several or POST /jobs"
                        )
                    if isinstance(each[0], Blob):
                        permit.grow(0, each[0].size)
                    found.append(each)
    finally:
        packed.close()
    if not found:
        raise MalformedRequest("the archive has no images: only folders, links or hidden files")
    return found


def _next(archive: Archive, members: Iterator[Member], settings: Settings) -> Found | None:
    """Return the next file with its name, or the error of the rest, or None at the end."""
    name = None
    try:
        if (member := next(members, None)) is None:
            return None
        name = member.name
        return keep(archive.read(member, settings.max_image_bytes), settings), name, None
    except (BadArchive, TooLarge) as error:
        return error.with_traceback(None), name, None
