"""Connections to origins, kept for a while for further requests.

httpcore's own pool has a place for each connection, and loses one whenever a request is cancelled
before its connection is begun (https://github.com/encode/httpcore/issues/1093): clients that leave
early would end all fetches for good. Here a connection belongs to its request until that has ended,
then it is closed or idle. How many requests there are is up to the caller.

What an origin sends behind its answer would be read as the answer to the next request, which may be
that of another client. RFC 9112, section 9.2, forbids that, but httpcore keeps such a connection,
so here it is closed. The bytes behind an answer lie in several places: in h11, in the buffers of
TLS and of the event loop, and in the socket. A task that reads finds all of them but the first.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpcore

TURNS = 4
"""Turns of the event loop within which a read finds what was received before it began."""

MakeConnection = Callable[[httpcore.Origin], httpcore.AsyncHTTPConnection]


class ConnectionPool:
    """Pool for the transport of httpx, of one event loop; keeps at most `most_idle` connections."""

    def __init__(self, make: MakeConnection, most_idle: int) -> None:
        self._make = make
        self._most_idle = most_idle
        self._idle: list[IdleConnection] = []

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send a request; the connection is free again when the response is closed."""
        await self._close_expired()
        connection = await self._taken(request.url.origin)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await connection.aclose()
            raise
        stream = response.extensions["network_stream"]
        return httpcore.Response(
            response.status,
            headers=response.headers,
            content=_Body(response.stream, lambda: self._end(connection, stream)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the idle connections; the others end with their requests."""
        self._most_idle = 0
        while self._idle:
            await self._idle.pop().aclose()

    async def _close_expired(self) -> None:
        for each in [each for each in self._idle if each.has_ended()]:
            if each in self._idle:  # while another one was closed it may have been taken
                self._idle.remove(each)
                await each.aclose()

    async def _taken(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        """Return the connection to `origin` that was used last, or a new one."""
        for each in reversed(self._idle):
            if each.connection.can_handle_request(origin):
                self._idle.remove(each)
                if await each.taken():
                    return each.connection
                break
        return self._make(origin)

    async def _end(
        self, connection: httpcore.AsyncHTTPConnection, stream: httpcore.AsyncNetworkStream
    ) -> None:
        if not connection.is_idle() or self._most_idle == 0 or has_more(connection):
            await connection.aclose()
            return
        idle = await IdleConnection.watched(connection, stream)
        self._idle.append(idle)
        if len(self._idle) > self._most_idle:
            await self._idle.pop(0).aclose()


class _Body:
    """The body of a response; `end` is called when it is closed."""

    def __init__(self, stream: Any, end: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._end = end
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._stream.aclose()
        finally:
            await self._end()


def has_more(connection: httpcore.AsyncHTTPConnection) -> bool:
    """Return whether the parser holds bytes behind the answer; httpcore has no public way to it."""
    inner: Any = connection
    data: bytes = inner._connection._h11_state.trailing_data[0]
    return bool(data)


@dataclass(frozen=True, slots=True, eq=False)
class IdleConnection:
    """An idle connection and the task that waits for what the origin sends, or for its end."""

    connection: httpcore.AsyncHTTPConnection
    _reading: "asyncio.Task[bytes]"

    @classmethod
    async def watched(
        cls, connection: httpcore.AsyncHTTPConnection, stream: httpcore.AsyncNetworkStream
    ) -> "IdleConnection":
        """Begin to read from the idle connection's stream; what was received before is found."""
        idle = cls(connection, asyncio.create_task(_read(stream)))
        try:
            for _ in range(TURNS):
                await asyncio.sleep(0)
        except BaseException:
            await idle.aclose()
            raise
        return idle

    def has_ended(self) -> bool:
        """Return whether no request may be sent on it: it is old, closed, or more was sent."""
        return self._reading.done() or self.connection.has_expired()

    async def taken(self) -> bool:
        """End the reading; return whether a request may be sent. If not, it is closed."""
        try:
            quiet = await self._ended()
        except BaseException:
            await self.connection.aclose()
            raise
        if not quiet:
            await self.connection.aclose()
        return quiet

    async def aclose(self) -> None:
        """Close the connection."""
        try:
            await self._ended()
        finally:
            await self.connection.aclose()

    async def _ended(self) -> bool:
        """End the reading; return whether it has read nothing."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        return self._reading.cancelled()


async def _read(stream: httpcore.AsyncNetworkStream) -> bytes:
    """Return a byte that was sent, or none at the end of the connection, however it ends."""
    try:
        return await stream.read(1)
    except (httpcore.ReadError, ssl.SSLError):  # a reset, or an alert or a broken record of TLS
        return b""
