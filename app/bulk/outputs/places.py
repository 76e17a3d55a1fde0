"""Choose the file for the result of each image below a folder: folders of sources are mirrored."""

import hashlib
from itertools import chain, count
from pathlib import PurePosixPath

from models.codec import ENCODABLE, ImageFormat

SUFFIXES = {each: (each.extension, f".{each}") for each in ENCODABLE}
"""The suffixes of files of each format that can be written."""


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
