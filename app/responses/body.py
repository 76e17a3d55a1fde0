"""Send bodies in pieces: this bounds what is buffered, and the write timeout applies to each."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Protocol

from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.pipeline.results.encoded_files import EncodedFile
from models.domain.errors import Cancelled

PIECE = 1 << 18
"""Largest number of bytes that are sent at a time. A connection whose client does not read buffers
about as much."""

Body = AsyncGenerator[bytes | memoryview, None]
"""The content of an answer, in chunks of any size."""


class Closing(Protocol):
    """What a body reads from, which is closed after the body."""

    async def aclose(self) -> None:
        """Release what is held."""


class StreamedBody(Response):
    """A response whose content is generated while it is sent.

    `source` yields the answers that the content is made of. It is closed when the sending ends, for
    whatever reason, so that no work continues for a client that has left. `counted` says that no
    work is left and that all its bytes are counted as unread, so that it needs no permit.
    """

    def __init__(
        self,
        content: Body,
        headers: Mapping[str, str],
        media_type: str,
        source: Closing | None = None,
        *,
        counted: bool = False,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self.content = content
        self.counted = counted
        self._source = source

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the headers, then the content in pieces, as fast as the client reads them."""
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            async with aclosing(self.pieces()) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Cancelled:  # the client has left, or it read so slowly that its answer was dropped
            raise ClientDisconnect from None
        finally:
            if self._source is not None:
                await self._source.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def pieces(self) -> AsyncGenerator[memoryview, None]:
        """Yield the content in pieces of at most PIECE bytes."""
        async with aclosing(self.content) as chunks:
            async for chunk in chunks:
                for start in range(0, len(chunk), PIECE):
                    yield memoryview(chunk)[start : start + PIECE]


def whole_body(file: EncodedFile, headers: dict[str, str], media_type: str) -> Response:
    """Return a response of known length; large ones are sent in pieces."""
    if file.size <= PIECE:
        return Response(file.read(), headers=headers, media_type=media_type)
    sized = headers | {"Content-Length": str(file.size)}
    return StreamedBody(in_turns(pieces_of(file)), sized, media_type, counted=True)


def pieces_of(file: EncodedFile) -> Iterator[bytes]:
    """Yield a file in pieces, each of which is read when it is needed."""
    for start in range(0, file.size, PIECE):
        yield file.read(start, PIECE)


async def in_turns(pieces: Iterable[bytes]) -> Body:
    """Yield pieces that are made one by one; other tasks of the event loop run between them."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
