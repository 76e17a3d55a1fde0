"""Images of a bulk command by their names, and the search of a folder for them, in a fixed order.

Only the names in the folders on the way to the present one are in memory: a tree of a million files
takes as much as its largest folders.
"""

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from app.bulk.errors import WrongUsage
from models.codec.formats import ImageFormat, identify

IMAGES = (
    *("jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp", "tif", "tiff", "avif"),
    *("heic", "heif", "hif"),
)
"""Endings of names that are taken without a look at the content."""

HEAD = 80
"""Bytes from which every format is told."""

SHOWN = 3
"""Names that are shown for each reason."""

NO_IMAGE = f"no image of a format that is read ({', '.join(each.name for each in ImageFormat)})"


class Source(NamedTuple):
    """An image that was not read yet.

    `name` is a path, a URL, an address in a bucket, `-`, or `archive.zip/member`. `place` is a
    relative path without `..`: where the result of the image is put below a folder of results.
    `load` reads a member of an archive: it takes the largest number of bytes, and raises
    ServiceError.
    """

    name: str
    place: str
    load: Callable[[int], bytes] | None = None


class Task(NamedTuple):
    """An image to answer; `number` is its position among all images of the command.

    `target` is the file for its result, if its name is known before the work.
    """

    number: int
    source: Source
    target: str = ""


def place_of(name: str) -> str:
    """Return the place of the result for a path, URL or address of a list: the same folders."""
    if name.startswith(("http://", "https://")):
        try:
            parts = urlsplit(name)
            name = f"{parts.netloc.rpartition('@')[2]}/{parts.path}"
        except ValueError:  # no URL after all (`http://[x`): its image fails, and others go on
            name = name.partition("://")[2]
    elif name.startswith(("s3://", "gs://", "az://")):
        name = name.partition("://")[2]
    kept = [part for part in name.split("/") if part not in ("", ".", "..")]
    return "/".join(kept) or "image"


class LeftOut:
    """The files and folders that were left out of a search, counted by their reasons."""

    def __init__(self) -> None:
        self._names: defaultdict[str, list[str]] = defaultdict(list)
        self._counts = Counter[str]()

    def add(self, reason: str, name: str) -> None:
        """Count a file or folder."""
        self._counts[reason] += 1
        if self._counts[reason] <= SHOWN:
            self._names[reason].append(name)

    def __str__(self) -> str:
        """Return a line with the reasons, and the first names of each; empty if there are none."""
        if not self._counts:
            return ""
        parts = []
        for reason, count in self._counts.items():
            more = ", …" if count > SHOWN else ""
            parts.append(f"{reason}: {count} ({', '.join(self._names[reason])}{more})")
        return f"{self._counts.total()} left out; {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which files of folders and archives are taken, by their names or paths below them.

    Patterns follow `fnmatch`. Without `include` all images are taken: files whose name ends
    like the name of an image, and files whose
    first bytes belong to an image.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def refusal(self, inner: str, head: Callable[[], bytes] = bytes) -> str:
        """Return why a file is left out, or an empty text if it is taken.

        `inner` is its path below the folder. `head` reads its first bytes; where reading is too
        dear, the name decides alone.
        """
        name = inner.rpartition("/")[2]
        if self.exclude and _matches(inner, name, self.exclude):
            return "--exclude"
        if self.include:
            return "" if _matches(inner, name, self.include) else "not of --include"
        if name.startswith("."):
            return "hidden"
        is_image = name.lower().rpartition(".")[2] in IMAGES or identify(head()) is not None
        return "" if is_image else NO_IMAGE

    def refusal_of_folder(self, inner: str) -> str:
        """Return why a folder is not searched, or an empty text if it is.

        Hidden ones are searched only if a pattern of `include` names them.
        """
        name = inner.rpartition("/")[2]
        if name.startswith(".") and not self._takes_hidden():
            return "hidden folder"
        return "--exclude" if self.exclude and _matches(inner, name, self.exclude) else ""

    def _takes_hidden(self) -> bool:
        return any(part.startswith(".") for each in self.include for part in each.split("/"))


def walk(
    folder: str, choice: Choice, results: str | None = None, left_out: LeftOut | None = None
) -> Iterator[str]:
    """Yield the paths below `folder` of the files that are taken.

    The files of a folder come first, then its folders, each in the order of their names' code
    points. Links to folders are not followed, so that no search is endless, and the folder
    `results` is skipped, because earlier results are no sources. WrongUsage names a folder that
    cannot be read.
    """
    left_out = LeftOut() if left_out is None else left_out
    left = [folder]
    while left:  # `os.walk` goes down by recursion, which has a limit
        path, folders, files = next(os.walk(left.pop(), onerror=_fail))
        inner = os.path.join(path[len(os.path.join(folder, "")) :], "")
        for name in sorted(files):
            head = partial(head_of, os.path.join(path, name))
            if reason := choice.refusal(f"{inner}{name}", head):
                left_out.add(reason, f"{inner}{name}")
            else:
                yield f"{inner}{name}"
        found = list[str]()
        for name in sorted(folders):
            full = os.path.join(path, name)
            if _is_same(full, results):
                continue
            is_link = os.path.islink(full)
            reason = "link to a folder" if is_link else choice.refusal_of_folder(f"{inner}{name}")
            if reason:
                left_out.add(reason, f"{inner}{name}")
            else:
                found.append(full)
        left += reversed(found)


def _fail(error: OSError) -> NoReturn:
    name = str(error.filename).rstrip("/")
    raise WrongUsage(f"{name}: {error.strerror}; --exclude leaves out folders") from None


def below(folder: str, inner: str) -> str:
    """Return the path of a file below a folder, spelled as by `pathlib`."""
    base = str(Path(folder))
    return inner if base == "." else os.path.join(base, inner)


def head_of(path: str) -> bytes:
    """Return the first bytes of a regular file; none if it cannot be read."""
    with suppress(OSError), open(path, "rb", buffering=0, opener=_without_waiting) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file.read(HEAD)
    return b""


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe without a wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_same(folder: str, results: str | None) -> bool:
    return results is not None and os.path.isdir(results) and os.path.samefile(folder, results)


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, each) or fnmatch(path, each) for each in patterns)
