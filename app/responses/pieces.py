"""Send bodies in pieces of 1 MiB: this bounds buffering, and the write timeout applies to each."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from fastapi.responses import Response, StreamingResponse

PIECE = 1 << 20
"""Bytes of an answer that are sent at a time."""


async def in_turns(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The pieces, made one by one; the event loop turns between two of them."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def sized(data: bytes, headers: dict[str, str], media_type: str) -> Response:
    """In pieces where it is large."""
    if len(data) <= PIECE:
        return Response(data, headers=headers, media_type=media_type)

    async def alone() -> AsyncIterator[bytes]:
        yield data

    sized = headers | {"Content-Length": str(len(data))}
    return StreamingResponse(pieces(alone()), headers=sized, media_type=media_type)


async def pieces(chunks: AsyncIterator[bytes | memoryview]) -> AsyncIterator[memoryview]:
    """A client that reads slowly holds its permit, not our memory, and has time for each piece."""
    async for chunk in chunks:
        for start in range(0, len(chunk), PIECE):
            yield memoryview(chunk)[start : start + PIECE]
