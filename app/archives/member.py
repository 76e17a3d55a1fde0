"""What every archive offers, whatever its format."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of an archive.

    `index` counts the regular files from 0, `name` is relative and has no `..`, `size` is the
    number of bytes as the archive states it. `place` is for the archive alone.
    """

    index: int
    name: str
    size: int
    place: int


class Archive(Protocol):
    """An open archive, as a context manager. It blocks, so call it on a thread.

    Its methods may be called on several threads at the same time. Its memory does not depend on
    the number of members, but for 32 bytes a member once `find` was called.
    """

    def members(self) -> Iterator[Member]:
        """Yield the regular files in the order of the archive, without their content.

        Folders, links, devices, hidden files and `__MACOSX` are left out. Raises BadArchive where
        the rest of the archive cannot be read.
        """

    def read(self, member: Member, limit: int) -> bytes:
        """Return the content of a member.

        Raises TooLarge if it has more than `limit` bytes, and BadArchive if this member is
        damaged, encrypted or packed by an unknown method; others can be read nevertheless.
        """

    def find(self, name: str) -> Member | None:
        """Return the member of that name, the last one if there are several, as unpacking would."""

    def close(self) -> None:
        """Release the file; may be called again."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
