"""Search a folder for images, lazily and in a fixed order.

Only the names of the folders on the way to the present one are in memory: a tree of a million files
takes as much as its largest folder.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from app.bulk.errors import WrongUsage

IMAGES = ("jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp", "tif", "tiff", "avif")
"""Endings of names that are taken from folders unless `--include` names others."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which files of folders and archives are taken, by their names or paths below them.

    Patterns are those of `fnmatch`. Without `include` all images are taken.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def takes(self, inner: str) -> bool:
        """Return whether a file is taken; `inner` is its path below the folder."""
        name = inner.rpartition("/")[2]
        wanted = _matches(inner, name, self.include) if self.include else _is_image(name)
        return wanted and not (self.exclude and _matches(inner, name, self.exclude))

    def searches(self, inner: str) -> bool:
        """Return whether a folder is searched.

        Hidden ones are only if a pattern of `include` names one.
        """
        name = inner.rpartition("/")[2]
        if name.startswith(".") and not self._takes_hidden():
            return False
        return not (self.exclude and _matches(inner, name, self.exclude))

    def _takes_hidden(self) -> bool:
        return any(part.startswith(".") for each in self.include for part in each.split("/"))


def walk(folder: str, choice: Choice, results: str | None = None) -> Iterator[str]:
    """Yield the paths below `folder` of the files that are taken.

    The files of a folder come first, then its folders, each in the order of their names' code
    points. Links to folders are not followed, so that no search is endless, and the folder
    `results` is left out, because earlier results are no sources. WrongUsage names a folder that
    cannot be read.
    """
    left = [""]
    while left:
        inner = left.pop()
        files, folders = _listed(os.path.join(folder, inner))
        for name in files:
            path = f"{inner}{name}"
            if choice.takes(path):
                yield path
        for name in reversed(folders):
            path = f"{inner}{name}"
            if choice.searches(path) and not _is_same(os.path.join(folder, path), results):
                left.append(f"{path}/")


def below(folder: str, inner: str) -> str:
    """Return the path of a file below a folder, spelled as by `pathlib`."""
    base = str(Path(folder))
    return inner if base == "." else os.path.join(base, inner)


def _listed(folder: str) -> tuple[list[str], list[str]]:
    """Return the sorted names of files, and of folders that are no links."""
    files, folders = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _is_folder(entry):
                    files.append(entry.name)
                elif not entry.is_symlink():
                    folders.append(entry.name)
    except OSError as error:
        name = folder.rstrip("/")
        raise WrongUsage(f"{name}: {error.strerror}; --exclude leaves out folders") from None
    files.sort()
    folders.sort()
    return files, folders


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links that point at each other: one is a source if its name is that of one
        return False


def _is_same(folder: str, results: str | None) -> bool:
    return results is not None and os.path.isdir(results) and os.path.samefile(folder, results)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().rpartition(".")[2] in IMAGES


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, each) or fnmatch(path, each) for each in patterns)
