"""Name the images that are made of files after these files: `photos/cat.jpg` becomes `cat.webp`."""

import mmap
import re
import struct
from hashlib import blake2b
from urllib.parse import unquote, urlsplit

LONGEST = 160
"""Bytes of a name in UTF-8, to which a number and a suffix are added: file systems take 255."""

_UNSAFE = re.compile(
    r'[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"*:<>?|\\/]'
)
"""Characters that control terminals or the direction of text, that file systems refuse, or that
divide paths."""

_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,5}$")
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")

_CELLS = 1 << 27
"""Bits of the filter: of ten million names, 0.4 % are taken for repeated ones."""


class ImageNames:
    """Gives each image of a request or a job a name without folders and suffix, all different.

    Names that differ only in case count as equal, because file systems of Windows and macOS do so.
    The given names are in a Bloom filter, which takes 16 MiB at most: a name that is taken for a
    repeated one has the number of its image at its end.
    """

    def __init__(self) -> None:
        self._bits = mmap.mmap(-1, _CELLS // 8)  # pages take memory once they are written

    def next(self, index: int, source: str | None, id_: str | None) -> str:
        """Return the name of an image: that of its file or URL, else its id, else its number."""
        name = _of_source(source) or _safe(id_ or "") or f"{index:04d}"
        while not self._add(name):
            name = f"{name}-{index}"
        return name

    def _add(self, name: str) -> bool:
        """Add a name; return whether it is new."""
        digest, new = blake2b(name.casefold().encode(), digest_size=16).digest(), False
        for cell in struct.unpack("<4I", digest):
            place, bit = cell % _CELLS // 8, 1 << cell % 8
            new |= not self._bits[place] & bit
            self._bits[place] |= bit
        return new


def _of_source(source: str | None) -> str:
    """Return the safe name of a path or a URL without folders and suffix; it may be empty."""
    if source is None:
        return ""
    if source.startswith(("http:", "https:", "file:")):  # names in buckets are not encoded
        try:
            source = unquote(urlsplit(source).path)
        except ValueError:
            return ""
    return _safe(_SUFFIX.sub("", source.replace("\\", "/").rpartition("/")[2]))


def _safe(name: str) -> str:
    """Return a name that every file system takes, without a dot at either end."""
    short = _UNSAFE.sub("_", name).encode()[:LONGEST].decode(errors="ignore").strip(". ")
    return f"_{short}" if _DEVICE.match(short) else short
