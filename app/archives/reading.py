"""Read the regular files of a ZIP or TAR from an untrusted client, one at a time.

    with open_archive(path) as archive:
        for member in archive.members():
            data = archive.read(member, most_bytes)

ZIPs are read by `zipfile`, the headers of TARs are parsed by `tarfile`. `tarfile.open` itself does
not serve: it keeps every header, reads extended headers of any size into memory by slow regular
expressions, and ends silently at a damaged header.
"""

import gzip
import io
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from _compression import DecompressReader
from abc import ABC, abstractmethod
from bz2 import BZ2File
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Any, BinaryIO, Self, cast

from models.domain.errors import BadArchive, TooLarge
from models.threads import giving_way

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
"""Ends of the names of files that probably are archives, in lower case."""

XZ_MEMORY = 66 << 20
"""Bytes of memory that an .xz may ask for; a file made by `xz -9` takes 65 MiB."""

XZ_MEMORY_OF_REQUESTS = 9 << 20
"""The same limit in a request; a file made by `xz -6`, the default of `xz`, takes 8.1 MiB."""

LONGEST_NAME = 1000
"""Largest number of characters of a member's name, which is part of its record."""

LONGEST_ENTRY = 1000
"""Bytes that an entry of the directory of a ZIP may have on average; usual ones have 100."""

LONGEST_EXTENSION = 1 << 16
"""Largest number of bytes of an extended header of a TAR (pax or a long GNU name)."""

_PIECE = 1 << 16
_BLOCK = tarfile.BLOCKSIZE
_LARGEST = 1 << 63
"""Bytes that no file has; the header of a TAR can state up to 2⁸⁸."""

_HEADERS_PER_MEMBER = 3
"""Headers of one member of a TAR: its own, one of pax or a long name, one of a long link."""

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_XZ = lzma.FORMAT_XZ
_ENCRYPTED = 0x2061
"""Flags of a ZIP: encrypted content, patch data, strong encryption and a masked directory."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BEGINNING = re.compile(r"^(?:[A-Za-z]:|\.{0,2}/)+")
"""Drives, and the parts of a path between drives: `./C:/a`, `C:C:a`."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Largest number of members, and of bytes that they may unpack to.

    An archive may unpack to `ratio` times its own size; an archive that unpacks to at most `free`
    bytes is accepted whatever its ratio. Deflate reaches 1032 to 1, photos about 1 to 1. An .xz may
    take `memory` bytes to be decompressed. Once another thread has set `stop`, every check and
    every read raises BadArchive: the request has ended.
    """

    members: int = 1_000_000
    ratio: int = 100
    free: int = 256 << 20
    memory: int = XZ_MEMORY
    stop: Event = field(default_factory=Event)

    def check_count(self, count: int) -> None:
        """Raise BadArchive for more entries than an archive may have."""
        self.check_stop()
        if count > self.members:
            raise BadArchive(
                f"the archive has more than {self.members} entries; send several archives"
            )

    def check_expansion(self, unpacked: int, packed: int) -> None:
        """Raise BadArchive if an archive of `packed` bytes unpacks to far more bytes."""
        self.check_stop()
        allowed = max(self.free, self.ratio * packed)
        if unpacked > allowed:
            raise BadArchive(
                f"the archive has {packed} bytes and unpacks to more than {allowed}; "
                f"at most {self.ratio} times its size is allowed"
            )

    def check_stop(self) -> None:
        """Raise BadArchive once `stop` is set."""
        if self.stop.is_set():
            raise BadArchive("reading the archive was stopped, because its request has ended")


_DEFAULT_LIMITS = ArchiveLimits()


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of an archive.

    `index` counts the regular files from 0, `name` is relative and has no `..`, `size` is the
    number of bytes as the archive states it. `place` is the start of the content in a TAR.
    """

    index: int
    name: str
    size: int
    place: int = 0


class Archive(ABC):
    """An open archive, as a context manager. It blocks, so call it on a thread.

    Several threads may read members at the same time.
    """

    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        self._file, self._limits = file, limits
        self._stoppable = cast(BinaryIO, _Stoppable(file, limits))
        self._size = file.seek(0, io.SEEK_END)
        self._reading = Lock()

    @abstractmethod
    def members(self) -> Iterator[Member]:
        """Yield the regular files in the order of the archive, without their content.

        Folders, links, devices, hidden files and `__MACOSX` are left out. Raises BadArchive where
        the rest of the archive cannot be read.
        """

    def read(self, member: Member, limit: int) -> bytes:
        """Return the content of a member; a compressed TAR is read again for an earlier member.

        Raises TooLarge if the member has more than `limit` bytes, and BadArchive if the member is
        damaged, encrypted or packed by an unknown method; the other members can still be read.
        """
        if member.size > limit:
            raise TooLarge(
                f"the image has {member.size} bytes; one has at most {limit} "
                "(DARKROOM_MAX_IMAGE_BYTES)"
            )
        return self._content(member)

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {each.name: each for each in giving_way(self.members())}

    def find(self, name: str) -> Member | None:
        """Return the last member of that name; the first call walks the whole archive."""
        return self._by_name.get(name)

    def close(self) -> None:
        """Close the file; may be called again."""
        self._file.close()

    @abstractmethod
    def _content(self, member: Member) -> bytes:
        """Return the content of a member, whatever its size."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_archive(source: str | Path | BinaryIO, limits: ArchiveLimits = _DEFAULT_LIMITS) -> Archive:
    """Return a ZIP or TAR (plain, gzip, bzip2, xz), as its first bytes tell, to be read.

    `source` is a path, or a seekable binary file, which the archive owns from now on.
    The directory of a ZIP is checked here; a TAR is checked while it is read. Raises
    BadArchive, and OSError if the file cannot be read.
    """
    # Closed by the archive, at the end of its block.
    file = open(source, "rb") if isinstance(source, (str, Path)) else source  # noqa: SIM115
    try:
        start = _start(file)
        if not start:
            raise BadArchive("the archive is empty: it has no bytes")
        kind = _ZipArchive if start.startswith(_ZIP) else _TarArchive
        return kind(file, limits)
    except BaseException:
        file.close()
        raise


def unpacked(path: Path, limits: ArchiveLimits) -> Iterator[bytes]:
    """Yield the content of a .tar.gz, .tar.bz2 or .tar.xz; nothing for any other file.

    Members of a plain TAR can be read in any order. It blocks, so call it on a thread. Raises
    BadArchive.
    """
    with path.open("rb") as file:
        if (content := _decompressed(file, limits)) is not None:
            size, packed = 0, path.stat().st_size
            with _explained(limits, lambda: size):
                while piece := content.read1(_PIECE):  # `read` loses content before a damage
                    size += len(piece)
                    limits.check_expansion(size, packed)
                    yield piece


def safe_name(name: str) -> str:
    """Return a name as a relative path with `/`: no `..`, no drive, no control characters.

    Zip Slip (CWE-22) is not possible with the result. Two names may have the same result.
    """
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", name.replace("\\", "/"))
    # Once more after the cut: the rest of a first part may be `..`, or a drive.
    return _relative(_relative(text)[-LONGEST_NAME:]) or "unnamed"


def is_hidden(name: str) -> bool:
    """Return whether a safe name is a file of an operating system rather than of a person."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _relative(path: str) -> str:
    parts = _BEGINNING.sub("", path).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def _decoded(raw: bytes, otherwise: str) -> str:
    """Return a name that is mostly UTF-8, else in the codec `otherwise`, which has all bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode(otherwise, "replace")


def _start(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(6)


@contextmanager
def _explained(limits: ArchiveLimits, unpacked: Callable[[], int]) -> Iterator[None]:
    """Turn errors of decompressors into BadArchive; `unpacked` gives the bytes before them."""
    try:
        yield
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if str(error).startswith("Memory usage limit"):
            raise BadArchive(
                f"the compressed TAR takes more than {limits.memory} bytes of memory to be "
                "decompressed; compress it by `xz -6`, or send it as ZIP or plain TAR"
            ) from None
        raise BadArchive(
            f"the compressed TAR is damaged after {unpacked()} unpacked bytes ({error})"
        ) from None


class _ZipArchive(Archive):
    """A ZIP whose directory was checked: number of members, and bytes unpacked."""

    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        super().__init__(file, limits)
        try:
            # `zipfile` makes an object of 600 bytes of each entry of the directory.
            if end := cast(Any, zipfile)._EndRecData(file):
                size, place = end[5], end[-1]
                limits.check_count(size // LONGEST_ENTRY)
                file.seek(max(0, place - size - 76))  # 76 bytes of ZIP64 may lie between
                limits.check_count(file.read(size + 76).count(b"PK\x01\x02"))
            self._zip = zipfile.ZipFile(self._stoppable)
        except (
            zipfile.BadZipFile,
            RuntimeError,  # of a version of ZIP that zipfile cannot read
            ValueError,
            OverflowError,  # of a position that no file has
            OSError,
            struct.error,
        ) as error:
            raise BadArchive(f"the ZIP is damaged or incomplete: {error}") from None
        limits.check_expansion(sum(each.file_size for each in self._zip.infolist()), self._size)
        named = ((safe_name(_zip_name(each)), each) for each in self._zip.infolist())
        self._files = [(name, each) for name, each in named if _is_regular(name, each)]

    def members(self) -> Iterator[Member]:
        for index, (name, each) in enumerate(self._files):
            yield Member(index, name, each.file_size)

    def _content(self, member: Member) -> bytes:
        name, info = self._files[member.index]
        quoted = repr(name[:200])
        if info.flag_bits & _ENCRYPTED:
            raise BadArchive(f"{quoted} is encrypted; send it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadArchive(
                f"{quoted} is packed by method {info.compress_type}; stored (0) and deflate (8) "
                "are read"
            )
        try:
            with self._zip.open(info) as file:
                data = file.read(info.file_size)  # `read()` unpacks whatever is there at once
        except (
            zipfile.BadZipFile,
            zlib.error,
            OSError,
            EOFError,
            ValueError,
            OverflowError,  # of a position that no file has
            RuntimeError,
        ):
            data = b""
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise BadArchive(f"{quoted} is damaged in the ZIP; make the ZIP again")
        return data


def _zip_name(info: zipfile.ZipInfo) -> str:
    """Return the name: `zipfile` takes a name without the flag of UTF-8 for code page 437."""
    if info.flag_bits & 0x800:
        return info.orig_filename
    return _decoded(info.orig_filename.encode("cp437"), "cp437")


def _is_regular(name: str, info: zipfile.ZipInfo) -> bool:
    mode = info.external_attr >> 28 if info.create_system == 3 else 0
    return (
        mode in (0, 0o10) and not info.orig_filename.endswith(("/", "\\")) and not is_hidden(name)
    )


class _TarArchive(Archive):
    """A TAR; members before a damaged header can be read, the rest cannot be found."""

    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        super().__init__(file, limits)
        self._decompressed = _decompressed(file, limits)
        _header(self._read_at(0, _BLOCK), 0)

    def members(self) -> Iterator[Member]:
        index = headers = position = 0
        extended: dict[str, Any] = {}  # name and size of the member behind extended headers
        while (header := _header(self._read_at(position, _BLOCK), position)) is not None:
            headers += 1
            self._limits.check_count(headers // _HEADERS_PER_MEMBER)
            start, size = position + _BLOCK, header.size
            if header.type in _EXTENSIONS:
                extended |= self._extended(header, start)
            else:
                size = extended.get("size", header.size)
                if size >= _LARGEST:
                    raise BadArchive(f"the TAR is damaged at byte {position}: a size is {size}")
                raw = extended.get("name") or header.name.encode("latin-1")
                name = safe_name(_decoded(raw, "latin-1"))
                if header.isreg() and not header.issparse() and not is_hidden(name):
                    yield Member(index, name, size, start)
                    index += 1
                    self._limits.check_count(index)
                size = size if header.isreg() or header.type not in tarfile.SUPPORTED_TYPES else 0
                extended = {}
            position = start + -(-size // _BLOCK) * _BLOCK

    def _content(self, member: Member) -> bytes:
        data = self._read_at(member.place, member.size)
        if len(data) < member.size:
            raise BadArchive(f"{member.name[:200]!r} is cut off: the TAR ends before it does")
        return data

    def _read_at(self, position: int, size: int) -> bytes:
        file = self._decompressed
        if file is None:
            if position >= self._size:  # an archive may state a position that no call takes
                return b""
            with self._reading:
                self._stoppable.seek(position)
                return self._stoppable.read(size)
        self._limits.check_expansion(position + size, self._size)
        with self._reading, _explained(self._limits, file.tell):
            file.seek(position)
            return file.read(size)

    def _extended(self, header: tarfile.TarInfo, start: int) -> dict[str, Any]:
        """Return the name and the size in an extended header; raises BadArchive if it is long."""
        if header.size > LONGEST_EXTENSION:
            raise BadArchive(
                f"the TAR has an extended header of {header.size} bytes; "
                f"one has at most {LONGEST_EXTENSION}"
            )
        data, found = self._read_at(start, header.size), dict[str, Any]()
        if header.type == tarfile.GNUTYPE_LONGNAME:
            found["name"] = data.split(b"\0", 1)[0]
        elif header.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            for key, value in _pax(data):
                if key == b"path":
                    found["name"] = value
                elif key == b"size" and value.isdigit() and len(value) < 20:
                    found["size"] = int(value)
        return found


def _header(block: bytes, position: int) -> tarfile.TarInfo | None:
    """Return the header in a block, None at the end of the archive; raises BadArchive."""
    try:
        header = tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError as error:
        if position and not block.strip(b"\0"):
            return None
        if position:
            raise BadArchive(f"the TAR is damaged at byte {position}: {error}") from None
        raise BadArchive("the file is neither a ZIP nor a TAR (plain, gzip, bzip2 or xz)") from None
    if header.size < 0:
        raise BadArchive(f"the TAR is damaged at byte {position}: a size is negative")
    return header


def _pax(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records `LENGTH KEY=VALUE` of a pax header, up to a damaged record."""
    at = 0
    while at < len(data):
        length, blank, _ = data[at : at + 20].partition(b" ")
        if not blank or not length.isdigit() or not int(length):
            return
        key, _, value = data[at + len(length) + 1 : at + int(length)].partition(b"=")
        yield key, value.removesuffix(b"\n")
        at += int(length)


class _Stoppable:
    """A file whose `read` raises BadArchive once the limits' `stop` is set, wherever it is called.

    The headers of a gzip, and a million empty streams, are read in loops inside `gzip` and `bz2`.
    """

    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        self._file, self._limits = file, limits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1, /) -> bytes:
        self._limits.check_stop()
        return self._file.read(size)


def _decompressed(file: BinaryIO, limits: ArchiveLimits) -> io.BufferedIOBase | None:
    """Return the content of a compressed TAR as a file, or None for any other file."""
    start = _start(file)
    file.seek(0)
    packed = cast(BinaryIO, _Stoppable(file, limits))
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=packed)
    if start.startswith(b"BZh"):
        return BZ2File(packed)
    if start.startswith(b"\xfd7zXZ\x00"):
        # `lzma.LZMAFile` is this reader, without a limit of memory.
        reader = DecompressReader(
            packed, lzma.LZMADecompressor, lzma.LZMAError, format=_XZ, memlimit=limits.memory
        )
        return io.BufferedReader(reader)
    return None
