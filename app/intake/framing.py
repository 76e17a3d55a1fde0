"""Cut the body of a stream into items: lines, or images with their lengths before them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from app.http.request import StreamWindow
from app.intake.spool import Blob, Spool
from models.domain.errors import MalformedRequest, Overloaded, ServiceError, TooLarge

LENGTH_BYTES = 4
"""Bytes of the length before an image: an unsigned number, its most significant byte first."""

BLANK = 64
"""Blank lines that are skipped before other tasks of the event loop have their turn."""

Arrive = Callable[[int, int], Awaitable[None]]
"""Count bytes of an item that is not complete, and those that it announced (0: unknown)."""


async def lines(
    chunks: AsyncIterator[bytes],
    arrive: Arrive,
    window: StreamWindow,
    longest: int,
) -> AsyncGenerator[Blob, None]:
    """Yield the lines of a body that are not blank.

    Raises TooLarge for a line of more than `longest` bytes, without waiting for its end, and
    Overloaded.
    """
    blank = size = 0
    spool = Spool(longest)
    try:
        async for chunk in chunks:
            *complete, rest = chunk.split(b"\n")
            for line in complete:
                window.inside_item = False
                if size:
                    await spool.write(line)
                    yield await spool.finish()
                    spool, size = Spool(longest), 0
                elif line.strip():
                    yield Blob.of(line)
                else:
                    blank += 1
                    if blank % BLANK == 0:
                        await asyncio.sleep(0)  # a chunk may have 100,000 of them
            if rest:
                size += len(rest)
                if size > longest:
                    raise TooLarge(
                        f"a line has more than {longest} bytes; send larger images as "
                        "application/x-length-delimited; the stream ends here"
                    )
                await spool.write(rest)
                window.inside_item = True
                await arrive(len(rest), 0)
        if size:
            last = await spool.finish()
            if last.start(99).strip():
                yield last
    finally:
        await spool.__aexit__(None, None, None)


async def images(
    chunks: AsyncGenerator[bytes, None],
    arrive: Arrive,
    window: StreamWindow,
    limit: int,
) -> AsyncGenerator[Blob | ServiceError, None]:
    """Yield images of at most `limit` bytes, or TooLarge for a larger one, which is skipped.

    Raises MalformedRequest if the body ends inside an image.
    """
    pieces = _Pieces(chunks)
    while head := await pieces.exactly(LENGTH_BYTES):
        if len(head) < LENGTH_BYTES:
            raise MalformedRequest(f"the stream ends inside a length of {LENGTH_BYTES} bytes")
        window.inside_item = True
        image = await _image(pieces, int.from_bytes(head, "big"), arrive, limit)
        window.inside_item = False
        yield image


async def _image(pieces: "_Pieces", size: int, arrive: Arrive, limit: int) -> Blob | ServiceError:
    refused: ServiceError | None = None
    async with Spool(limit) as spool:
        try:
            spool.expect(size)
        except TooLarge as error:
            refused = error.with_traceback(None)
        left = size
        while left:
            piece = await pieces.some(left)
            if not piece:
                raise MalformedRequest(
                    f"the stream ends inside an image: {left} of its {size} bytes are missing"
                )
            left -= len(piece)
            if refused is None:
                await arrive(len(piece), size)
                try:
                    await spool.write(piece)
                except Overloaded as error:
                    refused = error.with_traceback(None)
        return refused or await spool.finish()


class _Pieces:
    """Bytes of a body by number, however it is cut on its way."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks
        self._chunk, self._at = b"", 0

    async def some(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        if self._at == len(self._chunk):
            self._chunk, self._at = await anext(self._chunks, b""), 0
        piece = self._chunk[self._at : self._at + most]
        self._at += len(piece)
        return piece

    async def exactly(self, count: int) -> bytes:
        """Return `count` bytes, or fewer at the end."""
        found = b""
        while len(found) < count and (piece := await self.some(count - len(found))):
            found += piece
        return found
