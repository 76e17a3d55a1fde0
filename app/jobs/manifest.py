"""Check a manifest that has arrived, and write it in the form that the runner reads.

A manifest of any length takes the memory of a line and some 200 bytes for each chunk. A JSON list
has a limit of its size, because it is parsed as a whole. A wrong line refuses the whole manifest,
with its number, before anything has been computed. A fault that only the work can find (an address
that is refused, a damaged image) is the error of its own item.
"""

import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from app.archives.image_names import ImageNames
from app.archives.reading import Member
from app.jobs.files import private
from app.jobs.store import SMALLEST_CHUNK, Span
from app.urls import MAX_URL
from models.domain.errors import FieldError, InternalError, MalformedRequest, TooLarge
from models.threads import giving_way

LONGEST_ID = 256
LONGEST_PATH = 1000

LARGEST = 8 << 20
"""Bytes of one line, of all lines of a chunk, and of a manifest that is one JSON list. The items of
a list take up to 36 times its size in memory."""


class ManifestLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An item of a manifest: `url`, `path` (a member of the archive) or `data` (a data URI)."""

    id: Annotated[str, msgspec.Meta(max_length=LONGEST_ID)] | None = None
    url: Annotated[str, msgspec.Meta(max_length=MAX_URL)] | None = None
    path: Annotated[str, msgspec.Meta(max_length=LONGEST_PATH)] | None = None
    data: str | None = None


class StoredLine(ManifestLine, forbid_unknown_fields=True, omit_defaults=True):
    """An item as it is on disk; `member` is the index, size and place of `path` in the archive.

    `name` is the name of its images, without suffix.
    """

    member: tuple[int, int, int] | None = None
    name: str = ""


Find = Callable[[str], Member | None]
"""Return the member of an archive by its name."""

_DECODE = msgspec.json.Decoder(ManifestLine).decode
_DECODE_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODE_STORED = msgspec.json.Decoder(StoredLine).decode
_ENCODE = msgspec.json.Encoder().encode


class ManifestWriter:
    """Writer of the manifest of a job. All methods block; call them in a thread.

    `most` items are taken. Items with a `path` are taken if `find` finds it in the archive. A chunk
    has at most `chunk` items.
    """

    def __init__(
        self,
        path: Path,
        most: int,
        *,
        chunk: int = SMALLEST_CHUNK,
        find: Find | None = None,
    ) -> None:
        # Closed by `close`.
        self._file = open(path, "wb", buffering=1 << 20, opener=private)  # noqa: SIM115
        self._most = most
        self._chunk = chunk
        self._find = find
        self._names = ImageNames()
        self._lines = 0
        self.total = self.size = 0
        self.spans: list[Span] = []
        self._first = self._start = 0

    def read(self, sent: Path) -> None:
        """Take the manifest in the file `sent`: JSON Lines, or a JSON list.

        It may begin with a byte order mark. Raises MalformedRequest and TooLarge.
        """
        with sent.open("rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            begin = file.tell()
            is_list = file.read(64).lstrip().startswith(b"[")
            file.seek(begin)
            lines = iter(lambda: file.readline(LARGEST + 2), b"")
            for text in giving_way(self._listed(file.read(LARGEST + 1)) if is_list else lines):
                self._line(text.removesuffix(b"\n"))

    def _listed(self, text: bytes) -> Iterator[bytes]:
        """Return the items of a JSON list, each as a line."""
        if len(text) > LARGEST:
            raise TooLarge(
                f"the manifest is a JSON list of more than {LARGEST} bytes; send it as JSON Lines, "
                "which may have any length"
            )
        try:
            found = _DECODE_LIST(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            self._lines = 1
            raise self._wrong(_reason(error)) from None
        return map(bytes, found)

    def _line(self, text: bytes) -> None:
        """Take a line; an empty line counts as a line and is no item."""
        self._lines += 1
        if len(text) > LARGEST:
            raise self._wrong(f"longer than {LARGEST} bytes; send large images in an archive")
        if text.isspace() or not text:
            return
        try:
            line = _DECODE(text)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._wrong(_reason(error)) from None
        given = [name for name in ("url", "path", "data") if getattr(line, name) is not None]
        if len(given) != 1:
            wanted = "exactly one of `url`, `path` and `data`"
            raise self._wrong(f"{wanted} is needed, not {' and '.join(given) or 'none'}")
        self.add(StoredLine(line.id, line.url, line.path, line.data, self._member(line)))

    def add(self, line: StoredLine) -> None:
        """Add an item; raises TooLarge."""
        if self.total >= self._most:
            raise TooLarge(f"the manifest has more than {self._most} items; make several jobs")
        name = self._names.next(self.total, line.url or line.path, line.id)
        n_bytes = self._file.write(_ENCODE(msgspec.structs.replace(line, name=name)) + b"\n")
        count = self.total - self._first
        size = self.size + n_bytes - self._start
        if count and (count >= self._chunk or size > LARGEST):
            self._close_span()
        self.total += 1
        self.size += n_bytes

    def finish(self) -> None:
        """Sync the file; raises MalformedRequest where there is no item."""
        if not self.total:
            raise MalformedRequest('the manifest has no item; send lines like {"url": "https://…"}')
        self._close_span()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Close the file, however writing it ended."""
        self._file.close()

    def _close_span(self) -> None:
        self.spans.append(Span(self._first, self.total - self._first, self._start, self.size))
        self._first, self._start = self.total, self.size

    def _member(self, line: ManifestLine) -> tuple[int, int, int] | None:
        if line.path is None:
            return None
        if self._find is None:
            raise self._wrong("`path` is a member of an archive, and no archive was sent with it")
        if (found := self._find(line.path)) is None:
            raise self._wrong(f"the archive has no file {line.path[:200]!r}")
        return place_of(found)

    def _wrong(self, reason: str) -> MalformedRequest:
        place = f"line {self._lines}"
        text = f"{place} of the manifest: {reason}; correct it, nothing was begun"
        return MalformedRequest(text, [FieldError(place, reason)])


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return str(error)[:200]
    return 'not a JSON object such as {"id": "a", "url": "https://…"}'


def place_of(member: Member) -> tuple[int, int, int]:
    """Return where a member is in its archive, as manifests on disk have it."""
    return member.index, member.size, member.place


def read(path: Path, span: Span) -> list[StoredLine]:
    """Return the items of a chunk.

    Raises InternalError where the disk has damaged the file: chunks of which a part was done would
    else count as whole chunks, and their job would never end.
    """
    with path.open("rb") as file:
        file.seek(span.start)
        found = [parsed(line) for line in file.read(span.stop - span.start).splitlines()]
    if len(found) != span.n_items:
        raise _damaged()
    return found


def parsed(text: bytes) -> StoredLine:
    """Return the item of a line of a stored manifest; raises InternalError for a damaged line."""
    try:
        return _DECODE_STORED(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _damaged() from None


def _damaged() -> InternalError:
    return InternalError("the manifest of the job is damaged on the server's disk; make it anew")
