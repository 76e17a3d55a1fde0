"""Let clients reach grpcio once they have acknowledged its settings.

Until then grpcio takes 16 MiB of metadata for each call, whatever its options say: its limit is
that of the settings which the client has acknowledged. A client that acknowledges none made 2 GB of
six seconds. So grpcio listens at a port of the loopback, and the connections of clients are
accepted like those of HTTP, with limits for each client. Once a client has acknowledged, bytes pass
between both as they come.
"""

import asyncio
import logging
from contextlib import suppress
from typing import cast

from app.connections.entrance import Ticket
from app.grpc_service.limits.first_frames import FirstFrames

log = logging.getLogger("darkroom.connections")

LOOPBACK = "127.0.0.1"

MOST_CONNECTIONS = 256
"""Connections of one front end, three quarters of them from one client. Further ones are closed."""

LAST = 5.0
"""Seconds in which clients get the last bytes of a server that has stopped."""

Address = tuple[str, int]


class Gate:
    """The connections of one grpcio server, which listens at `port` of the loopback once it is set.

    A client has `seconds` to acknowledge the settings, and to read the last bytes of a connection
    that the server has closed.
    """

    def __init__(self, seconds: float) -> None:
        self.port = 0
        self.seconds = seconds
        self.clients: dict[int, _Client] = {}
        """The clients, by the port from which their bytes reach grpcio."""
        self.open = 0
        """Connections of clients."""
        self._empty = asyncio.Event()

    def connected(self, ticket: Ticket) -> asyncio.Protocol:
        """Return the protocol for a connection that was let in."""
        self.open += 1
        return _Client(self, ticket)

    def address(self, port: int) -> Address | None:
        """Return the address of the client whose bytes reach grpcio from this port, if any."""
        client = self.clients.get(port)
        return None if client is None else client.address

    def end(self, port: int) -> None:
        """End the connection of the client at this port, because it does not read an answer."""
        if (client := self.clients.get(port)) is not None:
            log.debug("a connection for gRPC ended: an answer was not read")
            client.transport.abort()

    def left(self, port: int) -> None:
        """Note that a client has left, whose bytes reached grpcio from this port, if they did."""
        self.open -= 1
        self.clients.pop(port, None)
        if not self.clients:
            self._empty.set()

    async def drained(self) -> None:
        """Wait until clients have what grpcio sent before it stopped, at most LAST seconds."""
        self._empty.clear()
        if self.clients:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LAST)


class _End(asyncio.Protocol):
    """One end of a connection that passes through; `other` is the other end, once there is one."""

    transport: asyncio.Transport
    other: "_End | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, data: bytes) -> None:
        """Send to this end, unless it has left; uvloop raises an error then."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        """Read no more from the other end while this one does not read."""
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()


class _Server(_End):
    """The end at grpcio, whose bytes go to the client."""

    def __init__(self, client: "_Client") -> None:
        self._client = self.other = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._client.reach(self)

    def data_received(self, data: bytes) -> None:
        self._client.send(data)
        if not self._client.passing:
            self._client.answered()

    def connection_lost(self, _error: Exception | None) -> None:
        self._client.end()


class _Client(_End):
    """The end at a client."""

    def __init__(self, gate: Gate, ticket: Ticket) -> None:
        self._gate = gate
        self._ticket = ticket
        self._first: FirstFrames | None = FirstFrames()
        self._connecting: asyncio.Task[None] | None = None
        self._answered = False
        self._port = 0
        self.address: Address = ("", 0)
        self._loop = asyncio.get_running_loop()

    @property
    def passing(self) -> bool:
        """Return whether the client has acknowledged, so that all bytes pass."""
        return self._first is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._late = self._loop.call_later(self._gate.seconds, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._first is None:
            assert self.other is not None
            self.other.send(data)
            return
        try:
            self._first.add(data)
        except ValueError as error:
            log.debug("a connection for gRPC ended: %s", error)
            self.transport.abort()
            return
        if self._connecting is None and self._first.opening:
            self._connecting = self._loop.create_task(self._connect())
        self._pass()

    def answered(self) -> None:
        """Note that the server has sent its settings, which can be acknowledged from now on."""
        self._answered = True
        self._pass()

    def end(self) -> None:
        """Close the connection once the client has read what the server sent before its end."""
        if not self.transport.is_closing():
            self.transport.close()
            self._late.cancel()
            self._late = self._loop.call_later(self._gate.seconds, self.transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        self._late.cancel()
        self._ticket.leave()
        self._gate.left(self._port)
        if self.other is not None:
            self.other.transport.abort()

    def reach(self, server: _Server) -> None:
        """Note that the server was reached, and send it the opening."""
        if self.transport.is_closing() or self._first is None:
            server.transport.abort()
            return
        self.other = server
        self._port = server.transport.get_extra_info("sockname")[1]
        self.address = self.transport.get_extra_info("peername")[:2]
        self._gate.clients[self._port] = self
        server.send(self._first.opening)

    async def _connect(self) -> None:
        loop, port = self._loop, self._gate.port
        try:
            await loop.create_connection(lambda: _Server(self), LOOPBACK, port)
        except OSError:  # the server stops, or has no descriptor left
            self.transport.abort()

    def _pass(self) -> None:
        """Pass on what has waited if the client has acknowledged the settings of the server."""
        first = self._first
        if first is not None and first.acknowledged and self._answered:
            assert self.other is not None
            self._first = None
            self._late.cancel()
            self.other.send(first.rest())
