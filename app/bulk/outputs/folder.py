"""A folder of results: names in it, checks before the work; results are written whole or not."""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePosixPath

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.bulk.sources import contents
from app.bulk.sources.source import Source
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import InvalidParameter

SUFFIXES = {each: (each.extension, f".{each}") for each in ENCODABLE}
"""The suffixes of files of each format that can be written."""

OF_ONE_NAME = (errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR, errno.EISDIR)
"""Errors of writing that concern one name: other results can still be written."""


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The folder `path`; `replaces` says whether existing files may be replaced."""

    path: Path
    replaces: bool

    def file(self, target: str, format_: ImageFormat) -> Path:
        """Return the file for a result: `target`, with another suffix if the format differs.

        The format is known by then, and the name of the source may have promised another one.
        """
        suffixes = SUFFIXES[format_]
        if not target.lower().endswith(suffixes):
            target += format_.extension
        return self.path / target

    def write(self, target: str, format_: ImageFormat, data: bytes) -> Path:
        """Write one result and return its file.

        Raises InvalidParameter for a name that cannot be written or exists, and CannotWrite where
        no result can be written: no permission, or no space.
        """
        file = self.file(target, format_)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(file, data, replace=self.replaces)
        except FileExistsError:
            raise InvalidParameter(
                f"{file} exists already; choose another folder, or add --force to replace it", []
            ) from None
        except OSError as error:
            if error.errno in OF_ONE_NAME:
                raise InvalidParameter(f"cannot write {file}: {error.strerror}", []) from None
            raise CannotWrite.of(file, error) from None
        return file

    def has(self, source: Source, target: str) -> bool:
        """Return whether the result of an image is there, and not older than the image's file."""
        for format_ in SUFFIXES:
            with suppress(OSError, ValueError):
                made = self.file(target, format_).stat()
                is_file = source.load is None and not contents.is_fetched(source.name)
                if not is_file or made.st_mtime_ns >= os.stat(source.name).st_ctime_ns:
                    return True
        return False

    def check(self, roots: Iterable[str]) -> None:
        """Raise WrongUsage or CannotWrite if nothing can, or may, be written there.

        `roots` are the arguments of the command: a folder of sources cannot be that of results.
        """
        if self.path.exists() and not self.path.is_dir():
            raise WrongUsage(f"--output: {self.path} is no folder; name another one")
        for root in roots:
            if self.path.is_dir() and os.path.isdir(root) and os.path.samefile(root, self.path):
                raise WrongUsage(
                    f"--output: {self.path} is a folder of sources; name another folder"
                )
        folder = self.path
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            atomic_file.check_writable(folder)
        except OSError as error:
            raise CannotWrite.of(folder, error) from None

    def check_targets(self, wanted: Iterator[tuple[Source, str]], sources: Iterable[Source]) -> int:
        """Return the number of images; raise WrongUsage if a result would replace a file.

        With `replaces` only the sources are protected. Targets are those that the names of the
        sources promise; the others are checked when they are written.
        """
        count, existing = 0, set()
        for count, (_, target) in enumerate(wanted, 1):  # noqa: B007 (the count is returned)
            if (known := _inode(self.path / target)) is None:
                continue
            if not self.replaces:
                raise WrongUsage(
                    f"--output: {self.path / target} exists already; choose another folder, or add "
                    "--force to replace it"
                )
            existing.add(known)
        for source in sources if existing else ():
            is_file = source.load is None and not contents.is_fetched(source.name)
            if is_file and _inode(Path(source.name)) in existing:
                raise WrongUsage(
                    f"--output: a result would replace the source {source.name}; "
                    "choose another folder"
                )
        return count


class Places:
    """Names of results, for images in their order; `format` is that of all results, if one is.

    The result of `in/a.png` is `in/a` with the suffix of its format. An image whose name is taken
    by an image before it keeps its own suffix: `in/a.png.webp` beside the result of `in/a.jpg`. The
    names depend on the order alone, so a second run finds the same ones. With `one_folder` all
    images of a folder come together, and only their names are in memory; else 8 bytes of each.
    """

    def __init__(self, format_: ImageFormat | None, *, one_folder: bool) -> None:
        self._format, self._one_folder = format_, one_folder
        self._folder = ""
        self._taken: set[bytes] = set()

    def target(self, place: str) -> str:
        """Return the file for the image at `place`, relative to the folder of results."""
        folder, _, name = place.rpartition("/")
        if self._one_folder and folder != self._folder:
            self._taken.clear()
        self._folder = folder
        suffix = (self._format or claimed(name)).extension
        beside = f"{folder}/" if folder else ""
        stem = PurePosixPath(name).stem
        numbered = (f"{name}.{number}{suffix}" for number in count(2))
        names = chain((stem + suffix, name + suffix), numbered)
        return next(beside + each for each in names if not self._is_taken(beside + each))

    def _is_taken(self, target: str) -> bool:
        """Return whether an image before has this name, and note that it is taken now."""
        digest = hashlib.blake2b(target.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        if digest in self._taken:
            return True
        self._taken.add(digest)
        return False


def claimed(name: str) -> ImageFormat:
    """Return the format of a result by the suffix of its source; PNG where none can be written."""
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in (".jpe", ".jpeg"):
        return ImageFormat.JPEG
    return next((each for each in ENCODABLE if suffix in SUFFIXES[each]), ImageFormat.PNG)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
