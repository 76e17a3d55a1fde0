"""Undo `Content-Encoding` (RFC 9110, section 8.4) of requests, and of what origins send.

Bodies are unpacked in pieces as they come, so that no small body becomes a large one in memory.
"""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any

from starlette.types import Message, Receive, Scope

from models.domain.errors import MalformedRequest, TooLarge, UnsupportedCoding

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


class UnpackedBody:
    """A `receive` for the unpacked body of a request; `grow` counts its bytes before their use.

    The result raises TooLarge over `most` bytes (None: no limit) or MOST_RATIO, and
    MalformedRequest.
    """

    def __init__(
        self, receive: Receive, coding: str, most: int | None, grow: Callable[[int], None]
    ) -> None:
        self._receive, self._most, self._grow = receive, most, grow
        self._inflater = Inflater(coding)
        self._came = self._made = 0
        self._more, self._ended = True, False

    async def __call__(self) -> Message:
        """Return the next message of the unpacked body, then what comes behind the body."""
        if self._ended:
            return await self._receive()
        try:
            while not (piece := await self._inflater.piece()) and self._more:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                packed = message.get("body", b"")
                self._came += len(packed)
                self._inflater.feed(packed)
                self._more = message.get("more_body", False)
            if not piece:
                self._inflater.finish()
        except BadCoding as error:
            raise MalformedRequest(f"the body {error}; pack it again, or send it plain") from None
        self._made += len(piece)
        self._check()
        self._grow(len(piece))
        self._ended = not piece
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    def _check(self) -> None:
        ratio = ALLOWANCE + MOST_RATIO * self._came
        if self._made > ratio or (self._most is not None and self._made > self._most):
            limit = "" if self._most is None else f"{self._most} bytes, and "
            raise TooLarge(
                f"the compressed body becomes more than {self._made - 1} bytes; a body becomes at "
                f"most {limit}{MOST_RATIO} times itself and {ALLOWANCE} more; send several "
                "requests, or do not compress"
            )


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
    """Return a `receive` for the unpacked body, and take the headers of the packed body away."""
    packed = (b"content-encoding", b"content-length")
    scope["headers"] = [each for each in scope["headers"] if each[0] not in packed]
    return UnpackedBody(receive, coding, most, grow)
