"""A connection that bounds what an origin sends around its answer's content.

h11 bounds one header block, not how many come before the answer: 100,000 times `100 Continue` was
taken. Nor does it bound what stands between the chunks of a body.
"""

import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httpcore

from models.domain.errors import OriginFailed

LONGEST_HEAD = 1 << 16
"""Bytes from the request to the end of the answer's headers, interim answers included."""

MOST_HEADERS = 200
"""Header lines of an answer."""

MOST_LINES, STEP = 400, 2048
"""Lines of the head, interim answers included, and bytes of it that are read at a time. h11 takes
6 µs for a line, and 64 KiB may have 16,000; it gets no further piece after too many lines."""

MOST_FRAMING = 1 << 18
"""Bytes that may stand around the content of a body, beside one for each byte of content."""

MOST_PIECES, SMALLEST_PIECE = 4096, 128
"""Pieces of any size that a body may come in, and bytes that further ones have on average."""


QUIET = 0.001
"""Seconds in which a connection that is used again must be silent before a request is sent."""


class BoundedStream(httpcore.AsyncNetworkStream):
    """Counts what is read since the last request; `answered` ends the bound of the head."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._head_left: int | None = None
        self._lines = 0
        self.received = 0

    def answered(self) -> None:
        """Call this when the answer's headers have come."""
        self._head_left = None

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
    ) -> bytes:
        """Read more; raises OriginFailed when the head is too long.

        What is read while the head has not ended belongs to it, except in the last piece.
        """
        if self._head_left is not None:
            if self._head_left == 0:
                raise OriginFailed(
                    f"the origin sent {LONGEST_HEAD} bytes of headers and no end of them"
                )
            if self._lines > MOST_LINES:
                raise OriginFailed(f"the origin sent more than {MOST_LINES} lines of headers")
            max_bytes = min(max_bytes, self._head_left, STEP)
        data = await self._inner.read(max_bytes, timeout)
        self.received += len(data)
        if self._head_left is not None:
            self._head_left -= len(data)
            self._lines += data.count(b"\n")
        return data

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
    ) -> None:
        """Send a part of a request: what comes next is the head of an answer.

        Raises httpcore.ConnectionNotAvailable, so that the pool takes another connection, if the
        origin closed this one or sent more behind its last answer, which would be taken for the
        answer to this request.
        """
        if self.received:
            with suppress(httpcore.ReadTimeout):
                await self._inner.read(1, QUIET)
                raise httpcore.ConnectionNotAvailable
        self._head_left, self._lines, self.received = LONGEST_HEAD, 0, 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
    ) -> httpcore.AsyncNetworkStream:
        """Encrypt it; the bounds are those of what is decrypted."""
        try:
            encrypted = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:  # httpcore leaves it open where the request is cancelled
            await self._inner.aclose()
            raise
        return BoundedStream(encrypted)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks about the socket."""
        return self._inner.get_extra_info(info)


class ContentMeter:
    """Compares the content of one body with what was read for it."""

    def __init__(self, stream: object) -> None:
        self._stream = stream if isinstance(stream, BoundedStream) else None
        self._size = self._pieces = 0

    def add(self, piece: bytes) -> None:
        """Count a piece of the content; raise OriginFailed if most of the bytes are framing."""
        self._size += len(piece)
        self._pieces += 1
        if self._pieces > MOST_PIECES + self._size // SMALLEST_PIECE:
            raise OriginFailed("the origin sends its body in pieces of a few bytes")
        received = self._stream.received if self._stream else 0
        if received > 2 * self._size + MOST_FRAMING:
            raise OriginFailed("the origin sends more around its body than the body has")


def answered(stream: object, headers: Iterable[object]) -> ContentMeter:
    """Check an answer's headers, and meter the body that follows them."""
    if sum(1 for _ in headers) > MOST_HEADERS:
        raise OriginFailed(f"the origin sent more than {MOST_HEADERS} header lines")
    if isinstance(stream, BoundedStream):
        stream.answered()
    return ContentMeter(stream)
