"""A TAR as an `Archive`: plain, or inside gzip, bzip2 or xz.

Headers are parsed by Python's tarfile one by one. Its own loop over them keeps every header, and
reads extended headers of any size into memory.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Self

from app.archives.limits import ArchiveLimits, check_size
from app.archives.member import Member
from app.archives.name_index import NameIndex
from app.archives.names import decoded, is_hidden, safe_name
from app.archives.source import Content
from models.domain.errors import BadArchive

_BLOCK = tarfile.BLOCKSIZE

LONGEST_EXTENSION = 1 << 16
"""Largest number of bytes of an extended header (pax or a long GNU name)."""

MOST_RECORDS = 1000
"""Records of one pax header; programs write about ten, and one for each extended attribute."""

LARGEST = 1 << 63
"""Bytes that no file has; a header can state up to 2⁸⁸."""

HEADERS_PER_MEMBER = 3
"""Headers that one member may have: its own, one of pax or a long name, one of a long link."""

_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@dataclass(slots=True)
class _Extended:
    """What extended headers say about the member that follows them."""

    name: str | None = None
    size: int | None = None


class TarArchive:
    """A TAR; what follows a damaged header cannot be found, members before it can be read."""

    def __init__(self, content: Content, limits: ArchiveLimits) -> None:
        self._content, self._limits = content, limits
        self._names: NameIndex | None = None
        self._lock = Lock()
        try:
            # Kept, because a compressed TAR is read forward: going back would unpack it whole.
            self._first = content.read_at(0, _BLOCK)
            _header(self._first, 0)
        except BaseException:
            self.close()
            raise

    def members(self) -> Iterator[Member]:
        """Yield the regular files in order; `place` is where their content begins."""
        index = headers = position = 0
        extended = _Extended()
        while (header := _header(self._block(position), position)) is not None:
            headers += 1
            self._limits.check_count(headers // HEADERS_PER_MEMBER)
            start = position + _BLOCK
            if header.type in _EXTENSIONS:
                size = header.size
                self._extend(extended, header, start)
            else:
                size = header.size if extended.size is None else extended.size
                if size >= LARGEST:
                    raise BadArchive(f"the TAR is damaged at byte {position}: a size is {size}")
                name = safe_name(extended.name or _name(header))
                if header.isreg() and not header.issparse() and not is_hidden(name):
                    yield Member(index, name, size, start)
                    index += 1
                    self._limits.check_count(index)
                size = size if header.isreg() or header.type not in tarfile.SUPPORTED_TYPES else 0
                extended = _Extended()
            position = start + -(-size // _BLOCK) * _BLOCK

    def read(self, member: Member, limit: int) -> bytes:
        """Return the content of a member; raises TooLarge, and BadArchive if it is cut off."""
        check_size(member.size, limit)
        data = self._content.read_at(member.place, member.size)
        if len(data) < member.size:
            raise BadArchive(f"{member.name[:200]!r} is cut off: the TAR ends before it does")
        return data

    def find(self, name: str) -> Member | None:
        """Return the last member of that name; the first call reads the whole archive."""
        with self._lock:
            if self._names is None:
                self._names = NameIndex(self.members())
        return self._names.find(name)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, position: int) -> bytes:
        return self._content.read_at(position, _BLOCK) if position else self._first

    def _extend(self, extended: _Extended, header: tarfile.TarInfo, start: int) -> None:
        """Take the name and the size from an extended header; raises BadArchive if it is long."""
        if header.size > LONGEST_EXTENSION:
            raise BadArchive(
                f"the TAR has an extended header of {header.size} bytes; "
                f"one has at most {LONGEST_EXTENSION}"
            )
        data = self._content.read_at(start, header.size)
        if header.type == tarfile.GNUTYPE_LONGNAME:
            extended.name = decoded(data.split(b"\0", 1)[0], "latin-1")
        elif header.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            for key, value in _pax(data):
                if key == b"path":
                    extended.name = decoded(value, "latin-1")
                elif key == b"size" and value.isdigit() and len(value) < 20:
                    extended.size = int(value)


def _header(block: bytes, position: int) -> tarfile.TarInfo | None:
    """Return the header in a block, None at the end of the archive; raises BadArchive."""
    if not block.strip(b"\0"):
        if position:
            return None
        raise BadArchive("the file is neither a ZIP nor a TAR (plain, gzip, bzip2 or xz)")
    try:
        header = tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError as error:
        if position:
            raise BadArchive(f"the TAR is damaged at byte {position}: {error}") from None
        raise BadArchive("the file is neither a ZIP nor a TAR (plain, gzip, bzip2 or xz)") from None
    if header.size < 0:
        raise BadArchive(f"the TAR is damaged at byte {position}: a size is negative")
    return header


def _name(header: tarfile.TarInfo) -> str:
    """Return the name in a header, whose bytes were read as Latin-1 and mostly are UTF-8."""
    return decoded(header.name.encode("latin-1"), "latin-1")


def _pax(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records `LENGTH KEY=VALUE` of a pax header; what follows a damaged one is lost.

    Raises BadArchive for more than MOST_RECORDS.
    """
    at = count = 0
    while at < len(data):
        length, blank, _ = data[at : at + 20].partition(b" ")
        if not blank or not length.isdigit() or not int(length):
            return
        count += 1
        if count > MOST_RECORDS:
            raise BadArchive(f"the TAR has a pax header of more than {MOST_RECORDS} records")
        key, _, value = data[at + len(length) + 1 : at + int(length)].partition(b"=")
        yield key, value.removesuffix(b"\n")
        at += int(length)
