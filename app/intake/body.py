"""Bound a request's body in bytes, charge for its bytes as they arrive, and undo its coding.

`Content-Encoding` (RFC 9110, section 8.4) is undone in pieces as they come, also of what origins
send, so that no small body becomes a large one in memory.
"""

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope

from app.admission import Permit
from app.http.request import header
from app.intake.spool import Blob, Spool
from app.intake.spool import too_large as too_large_image
from models.domain.errors import MalformedRequest, TooLarge, UnsupportedCoding

PIECE = 1 << 18
"""Bytes that are unpacked at a time, on a thread, where zlib does not hold the GIL."""

MOST_RATIO = 100
"""Times the bytes of a packed body that it may become, beyond ALLOWANCE."""

ALLOWANCE = 16 << 20
"""Bytes that a packed body may become however small it is."""

MOST_MEMBERS = 1000
"""Members of a gzip body: an empty one costs 20 bytes and an object of zlib."""

CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""The codings that are undone, by the names that they have in headers."""


def announced(scope: Scope) -> int:
    """Return the bytes of the body that `Content-Length` announces, 0 without that header."""
    text = header(scope, b"content-length") or ""
    return int(text) if text.isdigit() else 0


def counted(receive: Receive, permit: Permit, most: int) -> Receive:
    """Return a `receive` that counts the body in `permit`.

    The body counts as arriving, and as admitted once it is complete. The result raises TooLarge
    with the first byte over `most`, and Overloaded.
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
            permit.arrives(chunk)
        else:
            reading = False
            permit.complete(size)
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
    with Spool(limit, refusal) as spool:
        more = True
        while more:  # as Request.stream does, whose generator takes 3 µs more
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            await spool.write(message.get("body", b""))
            more = message.get("more_body", False)
        return spool.finish()


def too_large(size: int | str, most: int) -> TooLarge:
    """Return the error for a body of `size` bytes; `size` may be text such as "more than 10"."""
    return TooLarge(
        f"the body has {size} bytes; one request takes {most} (DARKROOM_MAX_BODY_BYTES), "
        "send several"
    )


class BadCoding(ValueError):
    """A body is not what its coding says; the text goes on behind a noun such as "the body"."""


async def inflated(packed: AsyncIterable[bytes], coding: str) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a body of a coding, at most PIECE at a time; raises BadCoding."""
    inflater: Any = None
    members = 0
    async for data in packed:
        full = False  # zlib holds more bytes than it gave
        while data or full:
            if inflater is None or inflater.eof:
                members += 1
                if members > (MOST_MEMBERS if coding == "gzip" else 1):
                    raise BadCoding(f"goes on after the end of its {coding} data")
                inflater = zlib.decompressobj(_format_of(coding, data[0]))
            try:
                piece = await asyncio.to_thread(inflater.decompress, data, PIECE)
            except zlib.error:
                raise BadCoding(f"is not valid {coding}") from None
            data = inflater.unconsumed_tail or inflater.unused_data
            full = len(piece) == PIECE and not inflater.eof
            if piece:
                yield piece
    if inflater is None or not inflater.eof:
        raise BadCoding(f"ends before its {coding} data do")


def _format_of(coding: str, first: int) -> int:
    """Return the parameter `wbits` of zlib for data that begin with the byte `first`.

    HTTP calls the format zlib deflate, but some clients send the bare format of that name. The
    first byte of zlib is the method 8 with a window of at most 32 KiB.
    """
    if coding == "gzip":
        return 31
    return 15 if first & 0x0F == 8 and first >> 4 <= 7 else -15


def coding_of(scope: Scope) -> str:
    """Return the coding of a request's body, empty without one; raises UnsupportedCoding."""
    headers = [value for name, value in scope["headers"] if name == b"content-encoding"]
    if not headers:
        return ""
    given = b", ".join(headers).decode("latin-1")
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
    came = made = 0
    ended = False

    async def arriving() -> AsyncGenerator[bytes, None]:
        nonlocal came
        async for chunk in Request(scope, receive).stream():
            came += len(chunk)
            yield chunk

    pieces = inflated(arriving(), coding)

    async def next_message() -> Message:
        nonlocal made, ended
        if ended:
            return await receive()
        try:
            piece = await anext(pieces, b"")
        except ClientDisconnect:
            return {"type": "http.disconnect"}
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
