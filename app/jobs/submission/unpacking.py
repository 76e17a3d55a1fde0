"""Unpack a compressed TAR into the folder of its job, because jobs read members in any order."""

import os
from dataclasses import replace
from pathlib import Path

from app.archives.reading import ArchiveLimits, unpacked
from app.jobs.files import ARCHIVE, private
from app.jobs.submission.room import Reservation
from models.domain.errors import TooLarge

UNPACKED = "archive.unpacked"
"""What is unpacked, before it takes the place of the archive."""

RATIO = 20
"""Times its own size that a compressed TAR may unpack to; photos in it stay as they are."""


def unpack(folder: Path, limits: ArchiveLimits, most: int, room: Reservation) -> None:
    """Replace a compressed TAR by a plain one of at most `most` bytes, counted in `room`.

    Any other archive stays as it is. It blocks, so call it on a thread. Raises BadArchive, TooLarge
    and StorageFull.
    """
    packed, plain, size = folder / ARCHIVE, folder / UNPACKED, 0
    with open(plain, "wb", opener=private) as file:
        for piece in unpacked(packed, replace(limits, ratio=RATIO)):
            size += len(piece)
            if size > most:
                raise TooLarge(
                    f"the archive unpacks to more than {most} bytes (DARKROOM_MAX_JOB_BYTES); "
                    "make several jobs"
                )
            room.use_on_thread(len(piece))
            file.write(piece)
    if size:
        os.replace(plain, packed)
    else:
        plain.unlink()
