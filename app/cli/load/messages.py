"""The requests of a measurement, prepared as bytes: own photos or drawn ones."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.bulk.errors import WrongUsage
from app.cli.load.client import Origin
from models.codec.formats import identify

BOUNDARY = "darkroom-bench-6e1f0c9b"

MOST_BYTES = 512 << 20
"""Bytes of photos that are read at most: all of them stay in memory."""

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"}

COPIES = 4
"""Requests made of each drawn image, which differ in a comment of the JPEG alone."""


def photos(paths: Sequence[str]) -> list[bytes]:
    """Return the content of files, and of the images in folders; WrongUsage if there is none."""
    found, size = list[bytes](), 0
    for path in _files(paths):
        try:
            found.append(path.read_bytes())
        except OSError as error:
            raise WrongUsage(f"--photos: {path}: {error.strerror}") from None
        size += len(found[-1])
        if size > MOST_BYTES:
            raise WrongUsage(f"--photos: more than {MOST_BYTES >> 20} MiB; choose fewer of them")
        if identify(found[-1][:80]) is None:
            raise WrongUsage(f"--photos: {path} is no image of a format that is read")
    if not found:
        raise WrongUsage("--photos: there is no image; name files, or folders with images in them")
    return found


def distinct(drawn: Sequence[bytes]) -> list[bytes]:
    """Return `COPIES` JPEGs of each drawn one, all with different bytes.

    A server that answers equal images from memory would otherwise be measured without its work.
    """
    return [
        jpeg[:2] + b"\xff\xfe\x00\x06%04d" % number + jpeg[2:]
        for number, jpeg in enumerate(itertools.chain(*[drawn] * COPIES))
    ]


def requests(
    origin: Origin, path: str, images: Sequence[bytes], each: int, headers: Mapping[str, str]
) -> list[bytes]:
    """Return one request for every `each` images, round and round: raw bodies or forms."""
    if each == 1:
        return [origin.request(path, {**headers, **_typed(image)}, image) for image in images]
    type_ = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    turns = itertools.cycle(images)
    return [
        origin.request(path, {**headers, **type_}, _form(list(itertools.islice(turns, each))))
        for _ in range(max(1, len(images) // each))
    ]


def _files(paths: Sequence[str]) -> list[Path]:
    found = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = (each for each in sorted(path.rglob("*")) if each.suffix.lower() in SUFFIXES)
            found += [each for each in inside if each.is_file()]
        else:
            found.append(path)
    return found


def _typed(image: bytes) -> dict[str, str]:
    format_ = identify(image[:80])
    return {"Content-Type": format_.media_type if format_ else "application/octet-stream"}


def _form(images: Sequence[bytes]) -> bytes:
    pieces = []
    for number, image in enumerate(images):
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; '
            f'filename="{number}"\r\nContent-Type: {_typed(image)["Content-Type"]}\r\n\r\n'
        )
        pieces += [head.encode(), image, b"\r\n"]
    return b"".join([*pieces, f"--{BOUNDARY}--\r\n".encode()])
