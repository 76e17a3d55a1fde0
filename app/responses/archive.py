"""Write a ZIP while it is sent; checksums are computed in pieces, between other work."""

import asyncio
import io
import time
import zipfile
from collections.abc import AsyncIterator
from typing import Any

from app.pipeline.encoded_files import EncodedFile
from app.responses.body import Body, pieces_of
from app.responses.records import archive_name, line
from app.responses.rendering import Answers, Rendering


async def stored(members: AsyncIterator[tuple[str, EncodedFile]]) -> Body:
    """Yield an uncompressed ZIP of members (name and content) in the order of their arrival."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        async for name, content in members:
            with archive.open(_entry(name, content.size), "w") as file:
                for piece in pieces_of(content):
                    file.write(piece)
                    for chunk in sink.drain():
                        yield chunk
                    await asyncio.sleep(0)
            for chunk in sink.drain():
                yield chunk
    for chunk in sink.drain():
        yield chunk


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    """Return the entry that `ZipFile.writestr` would make: dated now, readable by its owner."""
    entry = zipfile.ZipInfo(name, time.localtime()[:6])
    entry.external_attr = 0o600 << 16
    entry.file_size = size
    return entry


class _Sink(io.RawIOBase):
    """The file that zipfile writes to: unseekable, and emptied piece by piece by `drain`."""

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(data)  # bytes, which do not change, so they need no copy
        return len(data)

    def drain(self) -> list[bytes | memoryview]:
        chunks, self._chunks = self._chunks, []
        return chunks


async def members(answers: Answers, rendering: Rendering) -> AsyncIterator[tuple[str, EncodedFile]]:
    """Yield the images as they finish, by name; last `results.jsonl` with every record."""
    lines: dict[int, bytes] = {}
    async for each in answers:
        lines[each.item.index] = line(rendering.record(each, named=True))
        for version, file in each.images:
            yield archive_name(each.item.index, file, version), file.file
    yield "results.jsonl", EncodedFile(b"".join(lines[n] for n in sorted(lines)))
