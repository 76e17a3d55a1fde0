"""Open an archive, whatever its name says: its first bytes tell the format.

An image inside is read by

    with open_archive(path) as archive:
        for member in archive.members():
            data = archive.read(member, most_bytes)
"""

from pathlib import Path
from typing import BinaryIO

from app.archives.decompression import MAGIC
from app.archives.expansion import Expansion
from app.archives.limits import ArchiveLimits
from app.archives.member import Archive
from app.archives.source import FileContent
from app.archives.tar_archive import TarArchive
from app.archives.zip_archive import ZipArchive
from models.domain.errors import BadArchive

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""Ends of the names of files that probably are archives, in lower case."""

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of a ZIP, and of one without members."""

DEFAULT_LIMITS = ArchiveLimits()


def open_archive(source: str | Path | BinaryIO, limits: ArchiveLimits = DEFAULT_LIMITS) -> Archive:
    """Return a ZIP or TAR (plain, gzip, bzip2, xz) to be read; it blocks, so call it on a thread.

    `source` is a path, or a seekable binary file, which stays open and must not be used by others
    meanwhile. The directory of a ZIP is checked here; a TAR is checked while it is read. Raises
    BadArchive, and OSError if the file cannot be read.
    """
    content = FileContent(source)
    start = content.read_at(0, 6)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    if not start:
        content.close()
        raise BadArchive("the archive is empty: it has no bytes")
    if kind is not None:
        return TarArchive(Expansion(content, kind, limits), limits)
    if start.startswith(_ZIP):
        return ZipArchive(content, limits)
    return TarArchive(content, limits)
