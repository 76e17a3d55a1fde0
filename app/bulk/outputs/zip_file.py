"""A ZIP of results: they are collected in a folder beside it, and packed at the end.

So a command can go on after an interruption. Until its end the folder and the archive take twice
the space of the results.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.bulk.outputs.records import beside, unfinished
from app.bulk.report import readable
from app.bulk.sources.walk import Choice, walk

ALL = Choice(include=("*", ".*"), exclude=(".darkroom-*.tmp",))
"""All files of the folder but temporary ones, which a command that was killed may have left."""


def is_zip(output: str) -> bool:
    """Return whether results are packed, by the end of the name."""
    return output.lower().endswith(".zip") and not os.path.isdir(output)


def collected(archive: Path) -> Path:
    """Return the folder in which the results of `archive` are collected: `made.zip.images`."""
    path = archive.resolve()
    return path.with_name(f"{path.name}.images")


def check(archive: Path, roots: Iterable[str], *, replaces: bool) -> None:
    """Raise WrongUsage if a new command may not write the archive."""
    if archive.exists() and any(os.path.exists(r) and archive.samefile(r) for r in roots):
        raise WrongUsage(f"--output: {archive} is one of the sources; choose another name")
    if archive.exists() and not replaces:
        raise WrongUsage(
            f"--output: {archive} exists already; choose another name, or add --force to replace it"
        )
    folder = collected(archive)
    if not unfinished(beside(archive)) and _is_packed(archive):
        discard(archive)  # the command that made the archive was stopped at its last step
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

    It is written as `made.zip.packing`; a command that goes on after `kill -9` writes that anew.
    This name stays until `discard`: while both names are of one file, the archive is that of an
    earlier try, and is left as it is. Any other one is replaced only if `replaces`.
    """
    target, temporary = archive.resolve(), _packing(archive)
    try:
        if not _is_packed(archive):
            _make(collected(archive), temporary, target, replaces)
        atomic_file.sync_folder(target.parent)
    except FileExistsError:
        raise CannotWrite(
            f"{archive} was made meanwhile; the results are in {collected(archive)}; to replace "
            "it, start the same command with --force"
        ) from None
    except OSError as error:
        raise CannotWrite(f"{archive}: {error.strerror}; the same command goes on") from None


def discard(archive: Path) -> None:
    """Remove the folder of the collected results, and the second name of the archive."""
    shutil.rmtree(collected(archive), ignore_errors=True)
    _packing(archive).unlink(missing_ok=True)


def _packing(archive: Path) -> Path:
    path = archive.resolve()
    return path.with_name(f"{path.name}.packing")


def _is_packed(archive: Path) -> bool:
    """Return whether the archive is that of the collected results: both names are of one file."""
    target, temporary = archive.resolve(), _packing(archive)
    return temporary.exists() and target.exists() and temporary.samefile(target)


def _make(folder: Path, temporary: Path, target: Path, replaces: bool) -> None:
    """Pack a folder into the file `temporary`, and give it the name `target`."""
    try:
        with temporary.open("wb") as file:
            with ZipFile(file, "w") as packed:  # images are compressed already
                for inner in walk(str(folder), ALL) if folder.is_dir() else ():
                    entry = ZipInfo(readable(inner))  # has no time, so equal results are equal ZIPs
                    entry.external_attr = 0o644 << 16
                    entry.file_size = (folder / inner).stat().st_size
                    with (folder / inner).open("rb") as image, packed.open(entry, "w") as member:
                        shutil.copyfileobj(image, member)
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            os.replace(temporary, target)
        else:
            atomic_file.publish(temporary, target)
    except BaseException:  # re-raised
        temporary.unlink(missing_ok=True)
        raise
