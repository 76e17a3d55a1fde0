"""A folder of results: checked before the work; results are written whole or not at all."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.bulk.outputs.places import SUFFIXES
from app.bulk.sources import contents
from app.bulk.sources.source import Source
from models.codec import ImageFormat
from models.domain.errors import InvalidParameter

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


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
