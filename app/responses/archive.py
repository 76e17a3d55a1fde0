"""A ZIP that is written while it is sent; checksums are summed up in pieces between other work."""

import asyncio
import io
import time
import zipfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from app.http.media_types import ZIP
from app.responses.as_completed import StartWork, as_completed
from app.responses.pieces import pieces
from app.responses.records import Present, archive_name, line

PIECE = 1 << 20
"""Bytes that are summed up at a time, in 0.3 ms."""


async def stored(members: AsyncIterator[tuple[str, bytes]]) -> AsyncIterator[bytes | memoryview]:
    """A ZIP of the members, by name, uncompressed and in the order they come."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        async for name, data in members:
            with archive.open(_entry(name, len(data)), "w") as file:
                for start in range(0, len(data), PIECE):
                    file.write(memoryview(data)[start : start + PIECE])
                    for chunk in sink.drain():
                        yield chunk
                    await asyncio.sleep(0)
            for chunk in sink.drain():
                yield chunk
    for chunk in sink.drain():
        yield chunk


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    """The directory entry that `ZipFile.writestr` makes: now, readable by its owner."""
    entry = zipfile.ZipInfo(name, time.localtime()[:6])
    entry.external_attr = 0o600 << 16
    entry.file_size = size
    return entry


class _Sink(io.RawIOBase):
    """What zipfile writes to: unseekable, handed on and forgotten piece by piece."""

    def __init__(self) -> None:
        self._chunks: list[bytes | memoryview] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._chunks.append(data)  # bytes, or a view of bytes: neither changes
        return len(data)

    def drain(self) -> list[bytes | memoryview]:
        chunks, self._chunks = self._chunks, []
        return chunks


def zipped(
    request: Request, works: Sequence[StartWork], present: Present, headers: dict[str, str]
) -> Response:
    """A ZIP of the images as they finish, `results.jsonl` with every record last."""
    name = {"Content-Disposition": 'attachment; filename="darkroom.zip"'}
    archive = stored(_members(request, works, present))
    return StreamingResponse(pieces(archive), headers=headers | name, media_type=ZIP)


async def _members(
    request: Request, works: Sequence[StartWork], present: Present
) -> AsyncIterator[tuple[str, bytes]]:
    lines: dict[int, bytes] = {}
    async for each in as_completed(request, works):
        lines[each.item.index] = line(present(each))
        for version, file in each.images:
            yield archive_name(each.item.index, file, version), file.data
    yield "results.jsonl", b"".join(lines[n] for n in sorted(lines))
