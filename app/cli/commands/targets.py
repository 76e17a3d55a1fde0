"""The target of `darkroom filter`: standard output, one file, or a folder with a file a source.

Predictable failures are refused before anything is started. Existing files are replaced only if the
user asks for that, and sources never.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.bulk.errors import CannotWrite, WrongUsage
from app.bulk.outputs import atomic_file
from app.bulk.sources import contents
from app.cli.standard_output import show
from models.codec import ENCODABLE, ImageFormat

STANDARD_OUTPUT = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """`path` as it was given; `replaces` says whether existing files may be replaced."""

    path: Path
    is_folder: bool
    replaces: bool

    @property
    def is_standard_output(self) -> bool:
        """Return whether results go to standard output."""
        return str(self.path) == STANDARD_OUTPUT and not self.is_folder

    def file(self, name: str) -> Path:
        """Return the file for a result called `name`."""
        return self.path / name if self.is_folder else self.path


def target_of(output: str, n_sources: int, force: bool) -> Target:
    """Return the target that `--output` names.

    It is a folder if it exists as one, if it ends with /, or if there are several sources.
    """
    path = Path(output)
    if path.is_dir() or output.endswith("/"):
        return Target(path, True, force)
    if n_sources == 1:
        return Target(path, False, force)
    if output == STANDARD_OUTPUT or path.exists() or _format_named(path):
        raise WrongUsage(f"--output: {output} is no folder, and there are {n_sources} files")
    return Target(path, True, force)


def format_of(target: Target) -> ImageFormat | None:
    """Return the format that the suffix of a file name asks for."""
    return None if target.is_folder else _format_named(target.path)


def name_for(source: str, format_: ImageFormat) -> str:
    """Return the name of the result of a source in a folder."""
    return Path(source).stem + format_.extension


def check(
    target: Target, names: Sequence[str], format_for: Callable[[ImageFormat], ImageFormat]
) -> None:
    """Raise WrongUsage or CannotWrite if results cannot, or may not, be written there.

    `format_for` maps the format of a source to the format of its result.
    """
    if target.is_standard_output or (not target.is_folder and atomic_file.is_stream(target.path)):
        return
    if target.is_folder:
        _check_names(target, names)
    elif target.path.suffix and _format_named(target.path) is None:
        _check_suffix(target.path, format_for)
    inputs = _inodes(names)
    for name in names:
        if (file := _file_for(target, name, format_for)) is not None:
            _check_file(file, inputs, target.replaces)
    _check_folder(target)


def write(target: Target, name: str, data: bytes) -> None:
    """Write one result; CannotWrite gives the reason where that fails."""
    if target.is_standard_output:
        show(data)
        return
    file = target.file(name)
    try:
        if target.is_folder:
            target.path.mkdir(parents=True, exist_ok=True)
        atomic_file.write(file, data, replace=target.replaces)
    except FileExistsError:
        raise CannotWrite(_exists(file)) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that point at each other
        raise CannotWrite.of(file, error) from None


def _check_names(target: Target, names: Sequence[str]) -> None:
    stems = [Path(name).stem for name in names]
    if len(set(stems)) < len(stems):
        raise WrongUsage(
            f"--output: two of the files would have the same name in {target.path}; "
            "filter them one by one"
        )


def _check_suffix(path: Path, format_for: Callable[[ImageFormat], ImageFormat]) -> None:
    """Refuse a suffix that names no format, unless `--format` gives the format."""
    if len({format_for(each) for each in ENCODABLE}) > 1:
        written = ", ".join(each.extension for each in ENCODABLE)
        raise WrongUsage(f"--output: {path.suffix} is no output format; use {written}, or --format")


def _file_for(
    target: Target, name: str, format_for: Callable[[ImageFormat], ImageFormat]
) -> Path | None:
    """Return the file for this source's result; None where only decoding will show its format."""
    if not target.is_folder:
        return target.path
    fixed = {format_for(each) for each in ENCODABLE}
    source = contents.format_of(name)
    if len(fixed) > 1 and source is None:
        return None
    return target.file(name_for(name, fixed.pop() if source is None else format_for(source)))


def _inodes(names: Sequence[str]) -> frozenset[tuple[int, int]]:
    """Return the device and the inode of each source that is a file; links give their target's."""
    found = set()
    for name in names:
        if not contents.is_fetched(name):
            with suppress(OSError, ValueError):  # it is missing, or has a null byte in its name
                status = os.stat(name)
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _check_file(file: Path, inputs: frozenset[tuple[int, int]], replaces: bool) -> None:
    try:
        if not file.exists():
            return
        status = file.stat()
        if (status.st_dev, status.st_ino) in inputs:
            raise WrongUsage(
                f"--output: {file} is one of the sources; choose another name, folder or --format"
            )
    except OSError as error:
        raise CannotWrite.of(file, error) from None
    if not replaces:
        raise WrongUsage(f"--output: {_exists(file)}")


def _check_folder(target: Target) -> None:
    """Check that the folder is writable, or can be made where it is missing."""
    folder = target.path if target.is_folder else target.path.parent
    try:
        if not target.is_folder:
            folder = target.path.resolve().parent
            if not folder.is_dir():
                raise WrongUsage(f"--output: there is no folder {folder}; make it first")
        while target.is_folder and not folder.exists() and folder != folder.parent:
            folder = folder.parent
        atomic_file.check_writable(folder)
    except (OSError, RuntimeError) as error:
        raise CannotWrite.of(folder, error) from None


def _format_named(path: Path) -> ImageFormat | None:
    return next((f for f in ENCODABLE if path.suffix.lower() in (f.extension, f".{f}")), None)


def _exists(file: Path) -> str:
    return f"{file} exists already; choose another name, or add --force to replace it"
