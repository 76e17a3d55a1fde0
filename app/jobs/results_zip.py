"""Write the results of a job as a ZIP: its images as files, and all records without their base64.

Records are read twice, for the images and for `results.jsonl`, so that memory is constant and
nothing is written to disk: beside the pieces of one read there is one record in memory.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from app.archives.zip_writer import ZipWriter
from app.jobs.results import whole_lines
from models.codec import ImageFormat

RESULTS, IMAGES = "results.jsonl", "images"
"""The member that has the records, and the folder of the images."""

PIECE = 1 << 18
"""Bytes of an image that are sent at a time."""

SILENCE = b"\n"
"""The line that says that no record has come for long."""

Records = AsyncGenerator[bytes, None]
"""Records as JSON Lines, in pieces of any size."""

Pieces = AsyncGenerator[bytes | memoryview, None]

_EXTENSIONS = {each.media_type: each.extension for each in ImageFormat}
_DECODE = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


class ResultsZip:
    """A ZIP of the results of a job.

    `read` returns the records; its second call returns the same ones. `chosen` leaves some of them
    out. Without `images` the ZIP has no images. With `padded`, an empty line among the records
    becomes bytes that belong to no member, because proxies end silent connections.
    """

    def __init__(
        self,
        read: Callable[[], Records],
        chosen: Callable[[Records], Records] = lambda records: records,
        *,
        images: bool = True,
        padded: bool = False,
    ) -> None:
        self._read = read
        self._chosen = chosen
        self._with_images = images
        self._padded = padded

    async def pieces(self) -> Pieces:
        """Yield the ZIP: the images in the order of their records, then all records."""
        with ZipWriter() as archive:
            if self._with_images:
                async with aclosing(self._members(archive)) as members:
                    async for piece in members:
                        yield piece
            yield archive.begin(RESULTS, padded=self._padded)
            async with aclosing(self._chosen(self._read())) as records:
                async for text in whole_lines(records):
                    if text == SILENCE:
                        if self._padded:
                            yield archive.pad()
                        continue
                    for piece in archive.content(await asyncio.to_thread(_named, text)):
                        yield piece
            yield archive.end()
            for end in archive.finish():
                yield end

    async def _members(self, archive: ZipWriter) -> Pieces:
        """Yield the images as members, of which the last one stays open while records may come.

        A silence before the first one opens their folder, which is a member then too.
        """
        async with aclosing(self._chosen(self._read())) as records:
            async for text in whole_lines(records):
                if text == SILENCE:
                    if self._padded:
                        if not archive.is_open:
                            yield archive.begin(f"{IMAGES}/", 0, padded=True)
                        yield archive.pad()
                    continue
                for name, content in await asyncio.to_thread(_images, text):
                    if archive.is_open:
                        yield archive.end()
                    yield archive.begin(name, len(content), padded=self._padded)
                    for start in range(0, len(content), PIECE):
                        for piece in archive.content(content[start : start + PIECE]):
                            yield piece
        if archive.is_open:
            yield archive.end()


def _images(text: bytes) -> list[tuple[str, memoryview]]:
    """Return the images of some records, by the names of their members."""
    return [
        (shown["name"], memoryview(base64.b64decode(data)))
        for record in map(_DECODE, text.splitlines())
        for shown, data in _taken(record)
    ]


def _named(text: bytes) -> bytes:
    """Return records whose images have the names of their members in place of base64."""
    records = [_DECODE(line) for line in text.splitlines()]
    for record in records:
        for _ in _taken(record):
            pass
    return b"".join(_ENCODE(record) + b"\n" for record in records)


def _taken(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Take the base64 of the images out of a record; yield both, with the names of their members.

    Records of earlier releases have no names: their images are called by the number of the item.
    """
    stem = f"{record['index']:04d}"
    found = [(stem, record.get("image"))]
    versions = enumerate(record.get("versions", ()))
    found += [(f"{stem}-{number}", each.get("image")) for number, each in versions]
    for number, shown in found:
        if shown is not None and (data := shown.pop("data", None)) is not None:
            name = shown.get("name") or number + _EXTENSIONS[shown["media_type"]]
            shown["name"] = f"{IMAGES}/{name}"
            yield shown, data
