"""The content of a compressed TAR as a plain one, for those who read its members in any order."""

from collections.abc import Iterator
from pathlib import Path

from app.archives.decompression import MAGIC
from app.archives.expansion import Expansion
from app.archives.limits import ArchiveLimits
from app.archives.source import FileContent

PIECE = 1 << 20
"""Bytes that are in memory at a time."""


def unpacked(path: Path, limits: ArchiveLimits) -> Iterator[bytes]:
    """Yield the content of a .tar.gz, .tar.bz2 or .tar.xz; nothing for any other file.

    It blocks, so call it on a thread. Raises BadArchive.
    """
    content = FileContent(path)
    start = content.read_at(0, 6)
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)
    if kind is None:
        content.close()
        return
    expansion, position = Expansion(content, kind, limits), 0
    try:
        while piece := expansion.read_at(position, PIECE):
            position += len(piece)
            yield piece
    finally:
        expansion.close()
