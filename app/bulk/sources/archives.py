"""Images in ZIP and TAR archives: each regular file is a source of its own."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from app.archives.reading import SUFFIXES, Archive, ArchiveLimits, Member, open_archive, unpacked
from app.bulk.errors import WrongUsage
from app.bulk.sources.source import Source
from app.bulk.sources.walk import HEAD, Choice, LeftOut
from models.domain.errors import BadArchive, ServiceError


def is_archive(name: str) -> bool:
    """Return whether a file is taken apart, by the end of its name."""
    return name.lower().endswith(SUFFIXES) and Path(name).is_file()


MOST = 32 << 20
"""Bytes of the largest member whose content is looked at because its name does not tell."""


def members(name: str, choice: Choice, left_out: LeftOut) -> Iterator[Source]:
    """Yield the images of an archive in its order, as `archive.zip/member`.

    The archive is open as long as the iteration. What follows a damage is missing from it, so the
    damage is a source of its own, which fails. WrongUsage for a file that is no archive.
    """
    with ExitStack() as stack:
        try:
            archive, damage = _opened(Path(name), stack)
        except (BadArchive, OSError) as error:
            reason = error.detail if isinstance(error, BadArchive) else error.strerror
            raise WrongUsage(f"{name}: {reason}") from None
        try:
            for member in archive.members():
                if reason := choice.refusal(member.name, partial(_head, archive, member)):
                    left_out.add(reason, f"{name}/{member.name}")
                    continue
                load = partial(_load, archive, member)
                yield Source(f"{name}/{member.name}", member.name, load)
            if damage is not None:
                raise damage
        except BadArchive as error:
            yield Source(f"{name}/", "damaged", _failing(error))


def _opened(path: Path, stack: ExitStack) -> tuple[Archive, BadArchive | None]:
    """Open an archive, a compressed TAR as a plain one in an unnamed file.

    Members are read in any order here. What comes before a damage of the compressed data can be
    read; the damage is returned.
    """
    plain = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed by the stack
    damage: BadArchive | None = None
    try:
        for piece in unpacked(path, ArchiveLimits()):
            plain.write(piece)
    except BadArchive as error:
        if not plain.tell():
            raise
        damage = error.with_traceback(None)
    return stack.enter_context(open_archive(plain if plain.tell() else path)), damage


def _head(archive: Archive, member: Member) -> bytes:
    try:
        return archive.read(member, MOST)[:HEAD]
    except ServiceError:  # it is too large, damaged or encrypted
        return b""


def _load(archive: Archive, member: Member, limit: int) -> bytes:
    return archive.read(member, limit)


def _failing(error: BadArchive) -> Callable[[int], bytes]:
    def load(_limit: int) -> bytes:
        raise error

    return load
