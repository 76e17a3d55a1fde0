"""The place of results: a file, a folder of names that mirror the sources, or a ZIP.

Predictable failures are refused before anything is started. Results are written whole or not at
all. Existing files are replaced only if the user asks for that, and sources never.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryFile
from zipfile import ZipFile, ZipInfo

from app.bulk import atomic_file, contents
from app.bulk.errors import CannotWrite, WrongUsage, exists
from app.bulk.journal import beside, unfinished
from app.bulk.report import readable
from app.bulk.walk import Choice, Source, walk
from models.codec import ENCODABLE, ImageFormat
from models.domain.errors import InvalidParameter

SUFFIXES = {each: (each.extension, f".{each}") for each in ENCODABLE}
"""The suffixes of files of each format that can be written."""

OF_ONE_NAME = (errno.ENAMETOOLONG, errno.EINVAL, errno.ENOTDIR, errno.EISDIR)
"""Errors of writing that concern one name: other results can still be written."""


def format_named(path: PurePath) -> ImageFormat | None:
    """Return the format that the suffix of a file name asks for."""
    return next((each for each in ENCODABLE if path.suffix.lower() in SUFFIXES[each]), None)


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The file or stream `path` for a single result."""

    path: Path
    replaces: bool

    def check(self, source: str, format_for: Callable[[ImageFormat], ImageFormat]) -> None:
        """Raise WrongUsage or CannotWrite if the result cannot, or may not, be written there.

        `format_for` maps the format of a source to the format of its result.
        """
        path = self.path
        if atomic_file.is_stream(path):
            return
        if path.suffix and format_named(path) is None and len(set(map(format_for, ENCODABLE))) > 1:
            written = ", ".join(each.extension for each in ENCODABLE)
            raise WrongUsage(
                f"--output: {path.suffix} is no output format; use {written}, or --format"
            )
        try:
            check_targets([str(path)], [source], replaces=self.replaces)
            folder = path.resolve().parent
            if not folder.is_dir():
                raise WrongUsage(f"--output: there is no folder {folder}; make it first")
        except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
            raise CannotWrite.of(path, error) from None
        _check_writable(folder)

    def write(self, _target: str, _format: ImageFormat, data: bytes) -> str:
        """Write the result; CannotWrite gives the reason where that fails."""
        try:
            atomic_file.write(self.path, data, replace=self.replaces)
        except FileExistsError:
            raise CannotWrite(exists(self.path)) from None
        except (OSError, RuntimeError) as error:
            raise CannotWrite.of(self.path, error) from None
        return str(self.path)


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The folder `path`; `replaces` says whether existing files may be replaced."""

    path: Path
    replaces: bool

    def write(self, target: str, format_: ImageFormat, data: bytes) -> str:
        """Write a result and return its file.

        Raises InvalidParameter for a name that cannot be written or exists, and CannotWrite where
        no result can be written: no permission, or no space.
        """
        file = _file(target, format_)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(file, data, replace=self.replaces)
        except FileExistsError:
            raise InvalidParameter(exists(file), []) from None
        except OSError as error:
            if error.errno in OF_ONE_NAME:
                raise InvalidParameter(f"cannot write {file}: {error.strerror}", []) from None
            raise CannotWrite.of(file, error) from None
        return str(file)

    def has(self, source: Source, target: str) -> bool:
        """Return whether the result of an image is there, and not older than the image's file."""
        for format_ in SUFFIXES:
            with suppress(OSError, ValueError):
                made = _file(target, format_).stat()
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
        _check_writable(next(each for each in (self.path, *self.path.parents) if each.exists()))


def check_targets(targets: Iterable[str], sources: Iterable[str], *, replaces: bool) -> None:
    """Raise WrongUsage if a result would replace a file.

    With `replaces` only the sources are protected. The names of the sources promise these targets;
    further targets are checked when they are written.
    """
    existing = {known: each for each in targets if (known := _inode(each)) is not None}
    for source in sources if existing else ():
        if not contents.is_fetched(source) and _inode(source) in existing:
            raise WrongUsage(
                f"--output: a result would replace the source {source}; choose another name, "
                "folder or --format"
            )
    if existing and not replaces:
        raise WrongUsage(f"--output: {exists(next(iter(existing.values())))}")


class Places:
    """Files for results in a folder, for images in their order; `format_` is that of all, if any.

    The result of `in/a.png` is `in/a` with the suffix of its format. An image whose name is taken
    by an image before it keeps its own suffix: `in/a.png.webp` beside the result of `in/a.jpg`. The
    names depend on the order alone, so a second run finds the same names. `animated` states that
    all frames are filtered: a GIF gives a GIF then, and its first frame a PNG.
    """

    def __init__(self, root: Path, format_: ImageFormat | None, *, animated: bool = False) -> None:
        self._root, self._format, self._animated = root, format_, animated
        self._taken: set[bytes] = set()

    def target(self, place: str) -> str:
        """Return the file for the image at `place`."""
        folder, _, name = place.rpartition("/")
        suffix = (self._format or _claimed(name, self._animated)).extension
        stem = PurePosixPath(name).stem
        numbered = (f"{name}.{number}{suffix}" for number in count(2))
        names = chain((stem + suffix, name + suffix), numbered)
        files = (str(self._root / folder / each) for each in names)
        return next(each for each in files if not self._is_taken(each))

    def _is_taken(self, target: str) -> bool:
        """Return whether an image before has this name, and note that it is taken now."""
        digest = hashlib.blake2b(target.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        known = digest in self._taken
        self._taken.add(digest)
        return known


def _claimed(name: str, animated: bool) -> ImageFormat:
    """Return the format of a result by the suffix of its source; PNG where none can be written."""
    path = PurePosixPath(name)
    if path.suffix.lower() in (".jpe", ".jpeg"):
        return ImageFormat.JPEG
    found = format_named(path)
    return found if found and (animated or found is not ImageFormat.GIF) else ImageFormat.PNG


def _file(target: str, format_: ImageFormat) -> Path:
    """Return the file for a result: `target`, with another suffix if the format differs.

    The format is known by then, and the name of the source may have promised another format.
    """
    suffixes = SUFFIXES[format_]
    return Path(target if target.lower().endswith(suffixes) else target + format_.extension)


def _check_writable(folder: Path) -> None:
    """Raise CannotWrite where no file can be made in a folder."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise CannotWrite.of(folder, error) from None


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


# A ZIP of results: they are collected in a folder beside it, and packed at the end. So a command
# can go on after an interruption.

PACKING = ".darkroom-zip.tmp"
"""The name of a ZIP in the folder of its results."""

ALL = Choice(include=("*", ".*"), exclude=(".darkroom-*.tmp",))
"""All files of the folder but temporary ones, which a command that was killed may have left."""


def is_zip(output: str) -> bool:
    """Return whether results are packed, by the end of the name."""
    return output.lower().endswith(".zip") and not os.path.isdir(output)


def collected(archive: Path) -> Path:
    """Return the folder in which the results of `archive` are collected: `made.zip.images`."""
    path = archive.resolve()
    return path.with_name(f"{path.name}.images")


def check_zip(archive: Path, roots: Iterable[str], *, replaces: bool) -> None:
    """Raise WrongUsage if a new command may not write the archive."""
    check_targets([str(archive)], roots, replaces=replaces)
    folder = collected(archive)
    if folder.exists() and unfinished(beside(archive)):
        raise WrongUsage(
            f"--output: {folder} has results of a command with other arguments that has not ended; "
            "start that one again, or remove the folder"
        )
    if folder.exists():
        raise WrongUsage(
            f"--output: {folder} belongs to no command that goes on: one that had ended was "
            "stopped while it removed the folder, or you made it; remove it, or choose another name"
        )


def pack(archive: Path, *, replaces: bool) -> None:
    """Make the archive of the collected results; it appears whole, with its content on disk.

    It is written in the folder of the results, which a command that goes on after `kill -9` packs
    anew. That name stays until `discard`: while both names are of the same file, the archive is of
    an earlier try, and is left as it is. Another archive is replaced only if `replaces`.
    """
    folder, target = collected(archive), archive.resolve()
    packed = folder / PACKING
    try:
        folder.mkdir(parents=True, exist_ok=True)  # it is missing if no image has a result
        if not (packed.exists() and target.exists() and packed.samefile(target)):
            _make(folder, packed)
            (os.replace if replaces else atomic_file.publish)(packed, target)
        atomic_file.sync_folder(target.parent)
    except FileExistsError:
        raise CannotWrite(
            f"{archive} was made meanwhile; the results are in {folder}; to replace it, start the "
            "same command with --force"
        ) from None
    except OSError as error:
        packed.unlink(missing_ok=True)  # a full disk needs its space
        raise CannotWrite(f"{archive}: {error.strerror}; the same command goes on") from None


def discard(archive: Path) -> None:
    """Remove the folder of the collected results."""
    shutil.rmtree(collected(archive), ignore_errors=True)


def _make(folder: Path, temporary: Path) -> None:
    """Pack a folder into the file `temporary`."""
    temporary.unlink(missing_ok=True)  # it may be a second name of an archive that was moved
    with temporary.open("wb") as file:
        with ZipFile(file, "w") as packed:  # images are compressed already
            for inner in walk(str(folder), ALL):
                entry = ZipInfo(readable(inner))  # has no time, so equal results are equal ZIPs
                entry.external_attr = 0o644 << 16
                packed.writestr(entry, (folder / inner).read_bytes())
        file.flush()
        os.fsync(file.fileno())
