"""Bound a request's body in bytes, charge for its bytes as they arrive, and undo its coding.

`Content-Encoding` (RFC 9110, section 8.4) is undone in pieces as they come, also of what origins
send, so that no small body becomes a large one in memory.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from app.admission import Permit
from app.http.request import header
from app.intake.spool import Blob, Spool
from app.intake.spool import too_large as too_large_image
from models.domain.errors import (
    MalformedRequest,
    Overloaded,
    ServiceError,
    TooLarge,
    UnsupportedCoding,
)

FIRST, PIECE = 1 << 16, 1 << 18
"""Bytes that are unpacked at a time: the first ones of a body on the event loop, which takes a
quarter of a millisecond, and all others on a thread, where zlib does not hold the GIL."""

MOST_RATIO = 100
"""Times the bytes of a packed body that it may become, beyond ALLOWANCE."""

ALLOWANCE = 16 << 20
"""Bytes that a packed body may become however small it is."""

MOST_MEMBERS = 1000
"""Members of a gzip body: an empty one costs 20 bytes and an object of zlib."""

CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""The codings that are undone, by the names that they have in headers."""

_GZIP, _ZLIB, _RAW = 31, 15, -15
"""The parameter `wbits` of zlib for each format."""


def announced(scope: Scope) -> int:
    """Return the bytes of the body that `Content-Length` announces, 0 without that header."""
    text = header(scope, b"content-length") or ""
    return int(text) if text.isdigit() else 0


def counted(receive: Receive, permit: Permit, expected: int, most: int) -> Receive:
    """Return a `receive` that counts the body in `permit`.

    The body counts as arriving, and as admitted once it is complete. `expected` are the announced
    bytes, or 0. The result raises TooLarge with the first byte over `most`, and Overloaded.
    """
    size, reading = 0, True

    async def next_message() -> Message:
        nonlocal size, reading
        message = await receive()
        if not reading or message["type"] != "http.request":
            return message
        chunk = len(message.get("body", b""))
        size += chunk
        if size > most:
            raise too_large(f"more than {most}", most)
        if message.get("more_body", False):
            permit.arrives(chunk, expected)
        else:
            reading = False
            permit.complete(chunk)
        return message

    return next_message


async def spooled(
    receive: Receive, limit: int, expected: int = 0, refusal: TooLarge | None = None
) -> Blob:
    """Return a whole body, of which `expected` bytes are announced.

    Raises TooLarge, or `refusal`, over `limit` bytes, Overloaded, and ClientDisconnect.
    """
    if expected > limit:
        raise too_large_image(expected, limit)
    async with Spool(limit) as spool:
        more = True
        while more:  # as Request.stream does, whose generator takes 3 µs more
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            try:
                await spool.write(message.get("body", b""))
            except TooLarge as error:
                raise refusal or error from None
            more = message.get("more_body", False)
        return await spool.finish()


def too_large(size: int | str, most: int) -> TooLarge:
    """Return the error for a body of `size` bytes; `size` may be text such as "more than 10"."""
    return TooLarge(
        f"the body has {size} bytes; one request takes {most} (DARKROOM_MAX_BODY_BYTES), "
        "send several"
    )


class BodyReader:
    """Gives the bytes of a body by number, however it is cut on its way; `place` counts them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self.place = 0

    async def some(self, most: int) -> bytes:
        """Return 1 to `most` bytes, or none at the end."""
        while not self._rest:
            try:
                self._rest = await anext(self._chunks)
            except StopAsyncIteration:
                return b""
        piece, self._rest = self._rest[:most], self._rest[most:]
        self.place += len(piece)
        return piece

    async def exactly(self, count: int) -> bytes:
        """Return `count` bytes, of which there are few, or fewer at the end."""
        found = b""
        while len(found) < count and (piece := await self.some(count - len(found))):
            found += piece
        return found

    async def file(
        self,
        size: int,
        limit: int,
        missing: Callable[[int], ServiceError],
        arrive: Callable[[int, int], Awaitable[None]] | None = None,
    ) -> Blob | ServiceError:
        """Return the next `size` bytes, or TooLarge or Overloaded if they are refused.

        `arrive` counts the bytes of each piece, and `size`. Raises `missing` of the bytes that the
        body lacks.
        """
        refused: ServiceError | None = None
        async with Spool(limit) as spool:
            if size > limit:
                refused = too_large_image(size, limit)
            left = size
            while left:
                piece = await self.some(left)
                if not piece:
                    raise missing(left)
                left -= len(piece)
                if refused is None:
                    if arrive is not None:
                        await arrive(len(piece), size)
                    try:
                        await spool.write(piece)
                    except Overloaded as error:
                        refused = error.with_traceback(None)
            return refused or await spool.finish()


class BadCoding(ValueError):
    """A body is not what its coding says; the text goes on behind a noun such as "the body"."""


class Inflater:
    """Undoes one coding: `feed` it, then take pieces until an empty one asks for more."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflater: Any = None
        self._packed = b""
        self._full = False
        self._made = self._members = 0

    def feed(self, packed: bytes) -> None:
        """Append bytes of the packed body."""
        self._packed += packed

    async def piece(self) -> bytes:
        """Return the next bytes, at most PIECE; empty: more must be fed. Raises BadCoding."""
        while self._packed or self._full:
            if self._inflater is None or self._inflater.eof:
                self._begin()
            most = FIRST if self._made < FIRST else PIECE
            unpack = self._inflater.decompress
            try:
                if most == FIRST:
                    made = unpack(self._packed, most)
                else:
                    made = await asyncio.to_thread(unpack, self._packed, most)
            except zlib.error:
                raise BadCoding(f"is not valid {self._coding}") from None
            self._packed = self._inflater.unconsumed_tail or self._inflater.unused_data
            self._full = len(made) == most and not self._inflater.eof
            self._made += len(made)
            if made:
                return bytes(made)
        return b""

    def finish(self) -> None:
        """Raise BadCoding if the packed body has not ended."""
        if self._inflater is None or not self._inflater.eof:
            raise BadCoding(f"ends before its {self._coding} data do")

    def _begin(self) -> None:
        """Begin a body, or the next member of a gzip body."""
        self._members += 1
        gzip = self._coding == "gzip"
        if self._members > (MOST_MEMBERS if gzip else 1):
            raise BadCoding(f"goes on after the end of its {self._coding} data")
        # HTTP calls the format zlib deflate, but some clients send the bare format of that name.
        # The first byte of zlib is the method 8 with a window of at most 32 KiB.
        first = self._packed[0]
        zlib_format = first & 0x0F == 8 and first >> 4 <= 7
        self._inflater = zlib.decompressobj(_GZIP if gzip else _ZLIB if zlib_format else _RAW)


def coding_of(scope: Scope) -> str:
    """Return the coding of a request's body, empty without one; raises UnsupportedCoding."""
    given = b", ".join(v for k, v in scope["headers"] if k == b"content-encoding").decode("latin-1")
    names = [each.strip().lower() for each in given.split(",")]
    names = [each for each in names if each not in ("", "identity")]
    if not names:
        return ""
    if len(names) > 1 or names[0] not in CODINGS:
        raise UnsupportedCoding(
            f"Content-Encoding is {given[:60]}; a body may be gzip, deflate or not compressed"
        )
    return CODINGS[names[0]]


def unpacked(
    scope: Scope, receive: Receive, coding: str, most: int | None, grow: Callable[[int], None]
) -> Receive:
    """Return a `receive` for the unpacked body, and take the headers of the packed body away.

    `grow` counts the unpacked bytes before their use. The result raises TooLarge over `most` bytes
    (None: no limit) or MOST_RATIO, and MalformedRequest; after the body it gives what comes behind.
    """
    packed = (b"content-encoding", b"content-length")
    scope["headers"] = [each for each in scope["headers"] if each[0] not in packed]
    inflater = Inflater(coding)
    came = made = 0
    more, ended = True, False

    async def next_message() -> Message:
        nonlocal came, made, more, ended
        if ended:
            return await receive()
        try:
            while not (piece := await inflater.piece()) and more:
                message = await receive()
                if message["type"] != "http.request":
                    return message
                came += len(message.get("body", b""))
                inflater.feed(message.get("body", b""))
                more = message.get("more_body", False)
            if not piece:
                inflater.finish()
        except BadCoding as error:
            raise MalformedRequest(f"the body {error}; pack it again, or send it plain") from None
        made += len(piece)
        if made > ALLOWANCE + MOST_RATIO * came or (most is not None and made > most):
            limit = "" if most is None else f"{most} bytes, and "
            raise TooLarge(
                f"the compressed body becomes more than {made - 1} bytes; a body becomes at most "
                f"{limit}{MOST_RATIO} times itself and {ALLOWANCE} more; send several requests, or "
                "do not compress"
            )
        grow(len(piece))
        ended = not piece
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    return next_message
