"""Write results to files, whole or not at all."""

import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from darkroom_client.records import FilteredImage, ImageResult

LONGEST_STEM = 80
"""Bytes of the longest name of an image in the name of a file, which has 255 bytes at most."""

PIECE = 1 << 18
"""Bytes of a file that are sent at a time."""

EXTENSIONS = {
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/tiff": ".tiff",
    "image/webp": ".webp",
}
"""Extensions of files by their media types."""


@contextmanager
def whole(path: Path) -> Generator[BinaryIO, None, None]:
    """Open a file under a temporary name beside it, and rename it at the end of the block.

    After an error in the block nothing is left. Raises OSError.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all; raises OSError."""
    with whole(path) as file:
        file.write(data)


def pieces(path: Path) -> Generator[bytes, None, None]:
    """Yield the content of a file piece by piece; raises OSError."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def stored(result: ImageResult, folder: Path) -> ImageResult:
    """Write the images of a result to a folder; return it with paths instead of their data."""
    stem = f"{result.index:06d}-{_stem(result.source)}".rstrip("-")
    image = result.image and _stored(result.image, folder, stem)
    versions = result.versions and [
        msgspec.structs.replace(
            each, image=each.image and _stored(each.image, folder, f"{stem}-{each.index}")
        )
        for each in result.versions
    ]
    return msgspec.structs.replace(result, image=image, versions=versions)


def _stored(image: FilteredImage, folder: Path, stem: str) -> FilteredImage:
    if image.data is None:
        return image
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (stem + EXTENSIONS.get(image.media_type, ".bin"))
    write(path, image.data)
    return msgspec.structs.replace(image, data=None, path=path)


def _stem(source: str | None) -> str:
    """Return the name in a path or URL without its extension, safe as a part of a file's name."""
    text = source or ""
    if text.lower().startswith(("http://", "https://")):
        with suppress(ValueError):  # no URL after all: its image has an error, and others go on
            text = urlsplit(text).path
    name = PurePosixPath(text.replace("\\", "/")).stem
    safe = re.sub(r"[^\w.-]+", "_", name).strip("._")
    return safe.encode("utf-8", "replace")[:LONGEST_STEM].decode("utf-8", "ignore")
