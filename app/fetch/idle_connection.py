"""A connection to an origin between two requests, on which the origin must send nothing.

The bytes behind an answer lie in several places: in h11, in the buffers of TLS and of the event
loop, and in the socket. A task that reads finds all of them but the first.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any

import httpcore

TURNS = 4
"""Turns of the event loop within which a read finds what was received before it began."""


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
