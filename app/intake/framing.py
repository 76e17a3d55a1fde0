"""Cut the body of a stream into items: lines, or images with their lengths before them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import closing

from app.http.stream_window import StreamWindow
from app.intake.spool import Blob, Spool
from app.parsing.arriving import ArrivingJson, ClientRoom, Text
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
    room: ClientRoom,
) -> AsyncGenerator[Text | ServiceError, None]:
    """Yield the lines of a body that are not blank, or the error of one that finds no memory.

    A line is valid until the next is asked for. Raises TooLarge for one of more than `longest`
    bytes, without waiting for its end.
    """
    blank = 0
    # The parts are cleared also when the client leaves inside a line, or the rest is not asked for.
    with closing(_Parts(room, longest)) as parts:
        async for chunk in chunks:
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                line = chunk[start:end]
                start = end + 1
                window.inside_item = False
                if parts.size:
                    parts.add(line)
                    yield parts.whole()
                    parts.close()
                elif line.strip():
                    yield line
                else:
                    blank += 1
                    if blank % BLANK == 0:
                        await asyncio.sleep(0)  # a chunk may have 100,000 of them
            if start < len(chunk):
                parts.add(chunk[start:])
                window.inside_item = True
                await arrive(len(chunk) - start, 0)
        if parts.size:
            last = parts.whole()
            if isinstance(last, ServiceError) or bytes(last[:99]).strip():
                yield last


class _Parts:
    """The parts of a line that came in several chunks; large lines share the memory of `room`."""

    def __init__(self, room: ClientRoom, longest: int) -> None:
        self._room, self._longest = room, longest
        self._arriving = ArrivingJson(room)
        self._refused: ServiceError | None = None
        self.size = 0

    def add(self, part: bytes) -> None:
        """Append a part; raises TooLarge."""
        self.size += len(part)
        if self.size > self._longest:
            raise TooLarge(
                f"a line has more than {self._longest} bytes, enough for an image of "
                "DARKROOM_MAX_IMAGE_BYTES; the stream ends here"
            )
        if self._refused is None:
            try:
                self._arriving.write(part)
            except Overloaded as error:
                self._refused = error.with_traceback(None)

    def whole(self) -> Text | ServiceError:
        """Return the line, or the error of one that found no memory."""
        return self._arriving.text() if self._refused is None else self._refused

    def close(self) -> None:
        """Give the memory of the line back; the next part begins another one."""
        self._arriving.__exit__()
        self._arriving, self._refused, self.size = ArrivingJson(self._room), None, 0


async def images(
    chunks: AsyncGenerator[bytes, None],
    arrive: Arrive,
    window: StreamWindow,
    limit: int,
    spool_bytes: int,
) -> AsyncGenerator[Blob | ServiceError, None]:
    """Yield images of at most `limit` bytes, or TooLarge for a larger one, which is skipped.

    Raises MalformedRequest if the body ends inside an image.
    """
    pieces = _Pieces(chunks)
    while head := await pieces.exactly(LENGTH_BYTES):
        if len(head) < LENGTH_BYTES:
            raise MalformedRequest(f"the stream ends inside a length of {LENGTH_BYTES} bytes")
        window.inside_item = True
        image = await _image(pieces, int.from_bytes(head, "big"), arrive, limit, spool_bytes)
        window.inside_item = False
        yield image


async def _image(
    pieces: "_Pieces", size: int, arrive: Arrive, limit: int, spool_bytes: int
) -> Blob | ServiceError:
    refused: ServiceError | None = None
    async with Spool(limit, spool_bytes) as spool:
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
