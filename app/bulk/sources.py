"""List the images that the arguments of a command stand for, lazily and in a fixed order.

Arguments are files, folders, archives, patterns, URLs, addresses in buckets, and lists of these.
"""

import glob
import os
import re
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

from app.archives.reading import SUFFIXES, Archive, ArchiveLimits, Member, open_archive, unpacked
from app.bulk import contents
from app.bulk.contents import STANDARD_INPUT, is_address, is_url
from app.bulk.errors import WrongUsage
from app.bulk.walk import HEAD, Choice, LeftOut, Source, below, place_of, walk
from app.storage.buckets import MISSING, installed, names_below
from app.storage.location import parse
from models.domain.errors import BadArchive, ServiceError
from models.settings import Settings

MOST = 32 << 20
"""Bytes of the largest member whose content is looked at because its name does not tell."""


class Sources:
    """Files, URLs, standard input, and the images of folders, archives, patterns and lists.

    They come in the order of `names`, then of `lists`; a folder stands for its images in the order
    of `walk`, an archive for the images in it. A name that is no file but matches files as a
    pattern stands for them. Each iteration begins anew and searches again, so the names of folders
    are never in memory together. `results` is a folder that is not searched.
    """

    def __init__(
        self,
        names: Sequence[str],
        choice: Choice | None = None,
        lists: Sequence[str] = (),
        separator: bytes = b"\n",
        results: str | None = None,
    ) -> None:
        if not names and not lists:
            raise WrongUsage("name files, folders or URLs, or a list of them with --from")
        if [*names, *lists].count(STANDARD_INPUT) > 1:
            raise WrongUsage("-: standard input can be read only once")
        self._names, self._choice, self._results = names, choice or Choice(), results
        self._lists = [SourceList(each, separator) for each in lists]
        self.left_out = LeftOut()
        """What the last iteration did not take from folders and archives."""

    @property
    def are_named(self) -> bool:
        """Return whether each image is an argument of its own: none is searched for."""
        return not self._lists and all(self._many(each) is None for each in self._names)

    def check(self) -> None:
        """Raise WrongUsage, with a line for each argument that cannot be read.

        Images of folders and lists are not looked at: an unreadable image has an error as its
        record.
        """
        problems = []
        for name in self._names:
            if is_address(name):
                try:
                    parse(name)
                    problem = None if installed() else MISSING
                except ServiceError as error:
                    problem = error.detail
            else:
                problem = None if self._many(name) else contents.problem(name)
            if problem:
                problems.append(f"{name}: {problem}")
        if problems:
            raise WrongUsage("\ndarkroom: ".join([*problems, "nothing was done"]))

    def count(self) -> int:
        """Return the number of images; WrongUsage where a folder, pattern or list has none."""
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Source]:
        self.left_out = LeftOut()
        for name in self._names:
            yield from self._found(name)
        for given in self._lists:
            empty = True
            for name in given:
                empty = False
                yield from self._found(name)
            if empty:
                raise WrongUsage(f"--from: {given.name}: no file or URL in it")

    def _found(self, name: str) -> Iterator[Source]:
        found = self._inside(name)
        first = next(found, None)
        if first is None:
            why = f" ({self.left_out})" if str(self.left_out) else ""
            raise WrongUsage(f"{name}: no image in it{why}; --include chooses other names")
        yield first
        yield from found

    def _inside(self, name: str) -> Iterator[Source]:
        found = self._many(name)
        return iter([self._file(name)]) if found is None else found  # a missing file is an error

    def _many(self, name: str) -> Iterator[Source] | None:
        """Return the images that a name stands for, or None if it is an image itself."""
        if name == STANDARD_INPUT or is_url(name):
            return None
        if is_address(name):
            return self._stored(name) if Choice().refusal(name) else None  # by its ending
        if os.path.isdir(name):
            inner = walk(name, self._choice, self._results, self.left_out)
            return (Source(below(name, each), each) for each in inner)
        if name.lower().endswith(SUFFIXES) and Path(name).is_file():
            return self._members(name)
        if glob.has_magic(name) and not os.path.lexists(name) and (match := glob.glob(name)):
            return chain.from_iterable(map(self._inside, sorted(match)))
        return None

    def _file(self, name: str) -> Source:
        """Return a file; below a folder of results it has its own name, a file of a list its
        path.
        """
        place = "image" if name == STANDARD_INPUT else place_of(name)
        return Source(name, place if self._lists else place.rpartition("/")[2])

    def _stored(self, name: str) -> Iterator[Source]:
        """Yield the images below an address in the order of the bucket, which is that of their
        keys; WrongUsage if it cannot be listed.
        """
        try:
            location = parse(name)
            for inner in names_below(location):
                folders = [inner[:n] for n, each in enumerate(inner) if each == "/"]
                refusals = map(self._choice.refusal_of_folder, folders)
                if reason := next(filter(None, refusals), "") or self._choice.refusal(inner):
                    self.left_out.add(reason, inner)
                else:
                    yield Source(str(location.below(inner)), inner)
        except ServiceError as error:
            raise WrongUsage(f"{name}: {error.detail}") from None

    def _members(self, name: str) -> Iterator[Source]:
        """Yield the images of an archive in its order, as `archive.zip/member`.

        The archive is open as long as the iteration. Members behind a damage are missing from it,
        so the damage is a source of its own, which fails. WrongUsage for a file that is no archive.
        """
        with ExitStack() as stack:
            try:
                archive, damage = _opened(Path(name), stack)
            except (BadArchive, OSError) as error:
                reason = error.detail if isinstance(error, BadArchive) else error.strerror
                raise WrongUsage(f"{name}: {reason}") from None
            try:
                for member in archive.members():
                    path = f"{name}/{member.name}"
                    if reason := self._choice.refusal(member.name, partial(_head, archive, member)):
                        self.left_out.add(reason, path)
                    else:
                        yield Source(path, member.name, partial(archive.read, member))
                if damage is not None:
                    raise damage
            except BadArchive as error:
                yield Source(f"{name}/", "damaged", partial(_fail, error))


def allowed(settings: Settings, names: Sequence[str]) -> Settings:
    """Return settings that allow the addresses among the arguments of a command to be read.

    A server reads from buckets only as its operator allows; who starts a command is its operator.
    """
    own = tuple(name for name in names if is_address(name))
    return settings.model_copy(update={"storage_allow": (*settings.storage_allow, *own)})


class SourceList:
    """The entries of a list that are not empty; several iterations may be under way.

    The list is read once, as bytes, because standard input and pipes can be read only once.
    `separator` is a newline or a NUL byte. WrongUsage if the list cannot be read.
    """

    def __init__(self, file: str, separator: bytes = b"\n") -> None:
        is_input = file == STANDARD_INPUT
        self.name = "standard input" if is_input else file
        try:
            content = sys.stdin.buffer.read() if is_input else Path(file).read_bytes()
        except OSError as error:
            raise WrongUsage(f"--from: {file}: {error.strerror}") from None
        self._content, self._separator = content.removeprefix(BOM_UTF8), separator

    def __iter__(self) -> Iterator[str]:
        are_lines = self._separator == b"\n"
        for found in re.finditer(b"[^%b]+" % self._separator, self._content):
            entry = found[0].rstrip(b"\r") if are_lines else found[0]
            if entry.strip() or not are_lines:
                yield os.fsdecode(entry)


def _opened(path: Path, stack: ExitStack) -> tuple[Archive, BadArchive | None]:
    """Open an archive, a compressed TAR as a plain TAR in an unnamed file.

    Members are read in any order here. Members before a damage of the compressed data can be
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


def _fail(error: BadArchive, _limit: int) -> bytes:
    raise error
