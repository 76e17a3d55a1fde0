"""Manifests of jobs: images as lines of JSON in a file, so that any number of them can be sent."""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from darkroom_client.images import Item, Source, content_of, item, one_or_many

ARCHIVES = {
    ".zip": "application/zip",
    ".tar": "application/x-tar",
    ".gz": "application/gzip",
    ".tgz": "application/gzip",
    ".bz2": "application/x-bzip2",
    ".xz": "application/x-xz",
}
"""Media types of archives of images, by their last extension."""

MEDIA_TYPES = {
    ".jsonl": "application/x-ndjson",
    ".ndjson": "application/x-ndjson",
    ".json": "application/json",
    **ARCHIVES,
}
"""Media types of files that make a job, by their last extension."""

LONGEST_ID = 256
"""Characters of the longest id that a server takes."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is sent as it is: its media type, and its size in bytes."""

    path: Path
    media_type: str
    size: int


def upload(path: Path) -> Upload:
    """Return a file that makes a job; raises ValueError for any other, and OSError."""
    return _upload(path, MEDIA_TYPES, "a job is made of a file")


def archive_upload(path: Path) -> Upload:
    """Return an archive of images; raises ValueError for any other file, and OSError."""
    return _upload(path, ARCHIVES, "an archive is a file")


def _upload(path: Path, kinds: Mapping[str, str], needed: str) -> Upload:
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path.name}: {needed} named {', '.join(kinds)}")
    return Upload(path, kind, path.stat().st_size)


def write_manifest(images: Iterable[Source], path: Path) -> None:
    """Write the manifest of images to a file.

    Raises OSError for a file that cannot be read: a job begins with all of its images, or not.
    """
    with path.open("wb") as file:
        file.writelines(_line(item(n, each)) for n, each in enumerate(one_or_many(images)[1]))


def _line(each: Item) -> bytes:
    """Return an image as a line; its id is the caller's, or else its path, URL or name."""
    line: dict[str, str] = {}
    named = each.id if each.id is not None else each.source
    if named is not None:  # bytes of a name that are no UTF-8, which JSON cannot have, are escaped
        named = named.encode("utf-8", "backslashreplace").decode()
        if len(named) <= LONGEST_ID:
            line["id"] = named
    if each.url is not None:
        line["url"] = each.url
    else:
        line["data"] = f"data:image/*;base64,{base64.b64encode(content_of(each)).decode()}"
    return msgspec.json.encode(line) + b"\n"
