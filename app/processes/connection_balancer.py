"""Accept connections of a shared socket so that the front end with the fewest takes the next.

Left to the kernel, the process that wakes first takes nearly all: 50 to 64 of 64 connections that
came one after the other, with four front ends. Sockets of their own (SO_REUSEPORT) would be even
enough, 9 to 27 each, but a front end that ends would reset the connections in its queue.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from app.admission.counters import Counters, Total
from app.connections.listening import BACKLOG

log = logging.getLogger("darkroom.acceptor")

AT_ONCE = 64
"""Connections that are accepted in one turn of the event loop, so that requests go on beside."""

PAUSE = 0.002
"""Seconds in which a front end with fewer connections may accept before this front end does."""

NO_ROOM = 0.1
"""Seconds until the next try after a try that failed: for too many open files, say."""

TLS_END = 10.0
"""Seconds in which a client can read the last bytes and end TLS; asyncio itself would wait 30."""


class ConnectionBalancer:
    """Acceptor of a front end, from its creation to `close`, which closes its socket.

    `connected` makes a protocol for each connection; `counters` have the connections of all front
    ends, and `make_room` closes a connection when no descriptor is left. A front end that is slow
    to take a connection, or leaves, loses it to another one after `PAUSE`. `handshake` bounds the
    seconds of a TLS handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        connected: Callable[[], asyncio.Protocol],
        counters: Counters,
        make_room: Callable[[], object],
        tls: ssl.SSLContext | None = None,
        handshake: float = 10.0,
    ) -> None:
        self._socket = listening
        self._connected = connected
        self._counters = counters
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._tls: dict[str, object] = {}
        if tls is not None:
            times = {"ssl_handshake_timeout": handshake, "ssl_shutdown_timeout": TLS_END}
            self._tls = {"ssl": tls, **times}
        self._pause: asyncio.TimerHandle | None = None
        self._taking: set[asyncio.Task[object]] = set()
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)  # now and not before, because connections can be answered
        self._loop.add_reader(self._socket, self._accept)
        self._counters.add(Total.ACCEPTING, 1)

    def close(self) -> None:
        """Accept the connections that wait in the kernel, and no more; they all continue."""
        self._counters.add(Total.ACCEPTING, -1)
        self._loop.remove_reader(self._socket)
        while self._take():
            pass  # to close the socket would reset the connections in its queue
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()

    @property
    def taking(self) -> bool:
        """Return whether an accepted connection has not been given to its protocol yet."""
        return bool(self._taking)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""

    def _accept(self) -> None:
        """Accept connections that wait, of which every front end is notified."""
        for _ in range(AT_ONCE):
            if not self._counters.fewest(Total.CONNECTIONS, len(self._taking)):
                # Another front end has fewer connections and is notified too. Without a pause this
                # process would be woken again and again until the other one has accepted.
                self._rest(PAUSE)
                return
            if not self._take():
                return

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._loop.add_reader(self._socket, self._accept)
        self._take()

    def _take(self) -> bool:
        """Accept a connection; return False if no connection waits."""
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # another front end was sooner, or the client has left
        except OSError as error:
            log.warning("no connection can be accepted: %s; raise the limit of open files", error)
            self._make_room()
            self._rest(NO_ROOM)
            return False
        self._taking.add(taking := self._loop.create_task(self._begin(connection)))
        taking.add_done_callback(self._taking.discard)
        return True

    async def _begin(self, connection: socket.socket) -> None:
        """After its TLS handshake, if there is one, the connection belongs to its protocol."""
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._connected,
                connection,
                **self._tls,  # type: ignore[arg-type]  # all of them are named above
            )
        except OSError as error:  # TLS errors and timeouts among them
            connection.close()
            log.debug("a connection was lost before its first byte: %s", error)
