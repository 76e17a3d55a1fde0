"""Read a body forward by numbers of bytes, and undo its compression within a bound."""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from models.domain.errors import MalformedRequest, TooLarge, UnsupportedMedia

FIRST, PIECE = 1 << 16, 1 << 18
"""Bytes that are decompressed at a time: the first ones of a body on the event loop, which takes a
quarter of a millisecond, and all others on a thread, where zlib does not hold the GIL."""

MOST_RATIO = 100
"""Times the bytes of a compressed body that it may become, beyond ALLOWANCE."""

ALLOWANCE = 16 << 20
"""Bytes that a compressed body may become however small it is."""

WINDOWS = {"gzip": 31, "deflate": 15}
"""The parameter `wbits` of zlib for each coding; what HTTP calls deflate is the format zlib."""


class BodyReader:
    """Gives the bytes of a body in its order, in pieces of known sizes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self._place = 0

    async def pieces(self, n: int) -> AsyncGenerator[bytes, None]:
        """Yield the next `n` bytes; raises MalformedRequest if the body ends before."""
        left = n
        while left:
            if not self._rest:
                self._rest = await self._next(left)
            piece, self._rest = self._rest[:left], self._rest[left:]
            self._place += len(piece)
            left -= len(piece)
            yield piece

    async def take(self, n: int) -> bytes:
        """Return the next `n` bytes, of which there are few."""
        return b"".join([piece async for piece in self.pieces(n)])

    async def end(self) -> None:
        """Read the end of the body; raises MalformedRequest if there are more bytes."""
        error = MalformedRequest(
            f"the body goes on after its tensors, which end at byte {self._place}"
        )
        if self._rest:
            raise error
        async for chunk in self._chunks:
            if chunk:
                raise error

    async def _next(self, left: int) -> bytes:
        async for chunk in self._chunks:
            if chunk:
                return chunk
        raise MalformedRequest(
            f"the body ends after {self._place} bytes, {left} before the end of its tensors"
        )


def coding_of(value: str) -> str:
    """Return the coding of a body by `Content-Encoding`; raises UnsupportedMedia."""
    coding = value.strip().lower()
    if coding in ("", "identity"):
        return ""
    if coding not in WINDOWS:
        raise UnsupportedMedia(
            f"Content-Encoding is {coding[:40]}; a body may be gzip, deflate or not compressed"
        )
    return coding


async def decompressed(
    chunks: AsyncIterator[bytes], coding: str, most: int, grow: Callable[[int], None]
) -> AsyncGenerator[bytes, None]:
    """Yield what a compressed body contains; `grow` counts its bytes before they are used.

    Raises TooLarge over `most` bytes or MOST_RATIO, and MalformedRequest.
    """
    inflater, came, made = zlib.decompressobj(WINDOWS[coding]), 0, 0
    async for chunk in chunks:
        if chunk and inflater.eof:
            raise _goes_on(coding)
        came += len(chunk)
        left, full = chunk, False
        while (left or full) and not inflater.eof:
            try:
                piece, most_now = await _next_piece(inflater, left, made)
            except zlib.error:
                raise MalformedRequest(f"the body is not valid {coding}") from None
            left, full = inflater.unconsumed_tail, len(piece) == most_now
            made += len(piece)
            _check(made, came, most)
            grow(len(piece))
            yield piece
        if inflater.unused_data:
            raise _goes_on(coding)
    if not inflater.eof:
        raise MalformedRequest(f"the body ends before its {coding} data do")


def _goes_on(coding: str) -> MalformedRequest:
    return MalformedRequest(f"the body goes on after the end of its {coding} data; send it as one")


async def _next_piece(inflater: Any, packed: bytes, made: int) -> tuple[bytes, int]:
    """Return the next bytes after the `made` ones, and how many there might have been at most."""
    if made < FIRST:
        return inflater.decompress(packed, FIRST), FIRST
    return await asyncio.to_thread(inflater.decompress, packed, PIECE), PIECE


def _check(made: int, came: int, most: int) -> None:
    if made > min(most, ALLOWANCE + MOST_RATIO * came):
        raise TooLarge(
            f"the compressed body becomes more than {made - 1} bytes; one becomes at most {most} "
            f"(DARKROOM_MAX_BODY_BYTES), or {MOST_RATIO} times itself and {ALLOWANCE} more; "
            "send several requests, or do not compress"
        )
