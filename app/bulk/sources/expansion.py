"""The images that the arguments of a command stand for, lazily and in a fixed order."""

import glob
import os
from collections.abc import Iterator, Sequence

from app.bulk.errors import WrongUsage
from app.bulk.sources import archives, buckets, contents
from app.bulk.sources.lists import SourceList
from app.bulk.sources.source import Source, place_of
from app.bulk.sources.walk import Choice, LeftOut, below, walk


class Sources:
    """Files, URLs, standard input, and the images of folders, archives, patterns and lists.

    They come in the order of `names`, then of `lists`; a folder stands for its images in the order
    of `walk`, an archive for those in it. A name that is no file but matches files as a pattern
    stands for them. Each iteration begins anew and searches again, so names are never in memory
    together. `results` is a folder that is not searched.
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
        if [*names, *lists].count(contents.STANDARD_INPUT) > 1:
            raise WrongUsage("-: standard input can be read only once")
        self._names, self._choice, self._results = names, choice or Choice(), results
        self._lists = [SourceList(each, separator) for each in lists]
        self.left_out = LeftOut()
        """What the last iteration did not take from folders and archives."""

    @property
    def are_named(self) -> bool:
        """Return whether each image is an argument of its own: none is searched for."""
        return not self._lists and not any(map(_stands_for_many, self._names))

    @property
    def is_one_folder(self) -> bool:
        """Return whether all images are those of one local folder."""
        return not self._lists and len(self._names) == 1 and os.path.isdir(self._names[0])

    def check(self) -> None:
        """Raise WrongUsage, with a line for each argument that cannot be read.

        Images of folders and lists are not looked at: one that cannot be read has an error as its
        record.
        """
        stored = [name for name in self._names if buckets.is_address(name)]
        if problems := [f"{name}: {text}" for name in stored if (text := buckets.check(name))]:
            raise WrongUsage("\ndarkroom: ".join([*problems, "nothing was done"]))
        contents.check([name for name in self._names if not _stands_for_many(name)])

    def count(self) -> int:
        """Return the number of images; WrongUsage where a folder, pattern or list has none."""
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Source]:
        self.left_out = left_out = LeftOut()
        for name in self._names:
            yield from self._found(name, left_out)
        for entries in self._lists:
            empty = True
            for name in entries:
                empty = False
                yield from self._found(name, left_out)
            if empty:
                raise WrongUsage(f"--from: {entries.name}: no file or URL in it")

    def _found(self, name: str, left_out: LeftOut) -> Iterator[Source]:
        found = self._inside(name, left_out)
        first = next(found, None)
        if first is None:
            why = f" ({left_out})" if str(left_out) else ""
            raise WrongUsage(f"{name}: no image in it{why}; --include chooses other names")
        yield first
        yield from found

    def _inside(self, name: str, left_out: LeftOut) -> Iterator[Source]:
        if name == contents.STANDARD_INPUT or contents.is_url(name):
            yield Source(name, place_of(name) if name != contents.STANDARD_INPUT else "image")
        elif buckets.is_address(name):
            yield from self._stored(name, left_out)
        elif os.path.isdir(name):
            yield from self._folder(name, left_out)
        elif archives.is_archive(name):
            yield from archives.members(name, self._choice, left_out)
        elif _is_pattern(name) and (match := sorted(glob.glob(name))):
            for each in match:
                many = _stands_for_many(each)
                yield from self._inside(each, left_out) if many else self._file(each)
        else:
            yield from self._file(name)  # a missing file is reported with all others

    def _folder(self, folder: str, left_out: LeftOut) -> Iterator[Source]:
        for inner in walk(folder, self._choice, self._results, left_out):
            yield Source(below(folder, inner), inner)

    def _stored(self, name: str, left_out: LeftOut) -> Iterator[Source]:
        if buckets.is_object(name):
            place = place_of(name)
            yield Source(name, place if self._lists else place.rpartition("/")[2])
        else:
            yield from buckets.below(name, self._choice, left_out)

    def _file(self, name: str) -> Iterator[Source]:
        """Yield a file; below a folder of results it has its own name, one of a list its path."""
        place = place_of(name)
        yield Source(name, place if self._lists else place.rpartition("/")[2])


def _is_pattern(name: str) -> bool:
    return not os.path.lexists(name) and glob.has_magic(name)


def _stands_for_many(name: str) -> bool:
    if name == contents.STANDARD_INPUT or contents.is_url(name):
        return False
    if buckets.is_address(name):
        return not buckets.is_object(name)
    if os.path.isdir(name) or archives.is_archive(name):
        return True
    return _is_pattern(name) and bool(glob.glob(name))
