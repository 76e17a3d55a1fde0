"""Images that a caller gives: paths, bytes, file objects and URLs, as items of requests."""

import os
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from darkroom_client.errors import Problem
from darkroom_client.records import ImageResult

LARGEST_IMAGE = 256 << 20
"""Largest image in bytes that is read: a server takes no larger request by default."""

URLS = ("http://", "https://", "s3://", "gs://", "az://", "file://")
"""Beginnings of addresses that the server reads; it refuses those that it does not allow."""

Content = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A path, an address that the server reads (`URLS`), the bytes of a file, or a binary file."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image with a name and an id of the caller's own, which its result repeats."""

    content: Content
    name: str | None = None
    id: str | None = None


Source = Content | Image
"""Whatever methods take as an image."""


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a call: exactly one of `url`, `path` and `content` is given.

    `size` is its size in bytes as far as it is known before it is read, else 0.
    """

    index: int
    source: str | None
    id: str | None
    url: str | None = None
    path: Path | None = None
    content: bytes | None = None
    size: int = 0

    def failed(self, problem: Problem) -> ImageResult:
        """Return the result of this image with an error."""
        return ImageResult(
            index=self.index, status="error", id=self.id, source=self.source, error=problem
        )


def one_or_many(images: Any) -> tuple[bool, Any]:
    """Return whether an argument is one image, and the collection of images that it stands for.

    Texts, bytes and files are iterable too, but each is one image.
    """
    kinds = (str, os.PathLike, bytes, bytearray, memoryview, Image)
    one = isinstance(images, kinds) or hasattr(images, "read")
    return one, [images] if one else images


def length(images: object) -> int | None:
    """Return the number of images in a collection, or None if it has no length."""
    return len(images) if isinstance(images, Sized) else None


def item(index: int, source: Source) -> Item:
    """Return an image as an item; a file object is read, because it may be closed later.

    Raises TypeError for what is no image, and OSError if a file object cannot be read.
    """
    given = source if isinstance(source, Image) else Image(source)
    content = given.content
    if isinstance(content, bytes | bytearray | memoryview):
        data = bytes(content)
        return Item(index, given.name, given.id, content=data, size=len(data))
    if isinstance(content, str) and content.lower().startswith(URLS):
        return Item(index, given.name or content, given.id, url=content)
    if isinstance(content, str | os.PathLike):
        path = Path(content)
        return Item(index, given.name or str(path), given.id, path=path, size=_size(path))
    if hasattr(content, "read"):
        data = content.read(LARGEST_IMAGE + 1)
        name = given.name or (str(content.name) if hasattr(content, "name") else None)
        return Item(index, name, given.id, content=data, size=len(data))
    raise TypeError(
        f"{type(content).__name__} is no image: give a path, a URL, bytes or a binary file"
    )


def content_of(each: Item) -> bytes:
    """Return the content of an image, none of a URL; raises OSError."""
    return read(each.path) if each.path is not None else each.content or b""


def read(path: Path) -> bytes:
    """Return the content of a regular file; raises OSError, also for one that is too large."""
    if not path.is_file():
        path.stat()  # a file that does not exist has a better error
        raise OSError(f"{path} is no regular file")
    with path.open("rb") as file:
        data = file.read(LARGEST_IMAGE + 1)
    if len(data) > LARGEST_IMAGE:
        raise OSError(f"{path} is larger than {LARGEST_IMAGE >> 20} MiB")
    return data


class Groups:
    """Collect items into groups, each for one request, by their number and their bytes."""

    def __init__(self, most_images: int, most_bytes: int) -> None:
        self._most_images = most_images
        self._most_bytes = most_bytes
        self._items: list[Item] = []
        self._bytes = 0

    def add(self, each: Item) -> Iterator[list[Item]]:
        """Add an item; yield the groups that are complete by now.

        A group exceeds the limit of bytes only if it is a single image.
        """
        if self._items and self._bytes + each.size > self._most_bytes:
            yield from self.rest()
        self._items.append(each)
        self._bytes += each.size
        if len(self._items) >= self._most_images or self._bytes >= self._most_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[list[Item]]:
        """Yield the last group, if there is one."""
        if self._items:
            group, self._items, self._bytes = self._items, [], 0
            yield group


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # reading the file will tell what is wrong
