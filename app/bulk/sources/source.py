"""One image of a bulk command: its name, and the place of its result below a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Source:
    """An image that was not read yet.

    `name` is a path, a URL, an address in a bucket, `-`, or `archive.zip/member`. `place` is a
    relative path without `..`: where the result of the image is put below a folder of results.
    `load` reads a member of an archive: it takes the largest number of bytes, and raises
    ServiceError.
    """

    name: str
    place: str
    load: Callable[[int], bytes] | None = None


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
