"""Accept connections of a shared socket so that the front end with the fewest takes the next.

Left to the kernel, the process that wakes first takes nearly all: 119 of 128, with four front ends.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from app.connections.entrance import Entrance, Ticket
from app.connections.listening import BACKLOG
from app.processes.connection_counts import Balance
from models.domain.errors import Draining

log = logging.getLogger("darkroom.acceptor")

PAUSE = 0.002
"""Seconds in which a front end with fewer connections may accept before this one does."""

REST = 0.01
"""Seconds without accepting under overload, once no connection waits. Nearly every one brings a
request that is refused then, and a turn of the event loop for several of them costs less than one
for each."""

LONG_REST = 0.02
"""The same after several connections at once. Where few come, one that is not refused waits less.
"""

NO_ROOM = 0.1
"""Seconds until the next try after one that failed: for too many open files, say."""


@dataclass(frozen=True, slots=True)
class SharedSocket:
    """The socket, the tally, and the number that a front end has in it."""

    socket: socket.socket
    tally: Balance
    number: int = 0


Wait = Callable[[socket.socket, Ticket, Callable[[], None]], None]
"""Calls its last argument when an accepted connection is to be begun."""


def begin_at_once(_connection: socket.socket, _ticket: Ticket, begin: Callable[[], None]) -> None:
    """Begin without waiting for anything."""
    begin()


class ConnectionBalancer:
    """Acceptor of one front end, from its creation to `close`, which closes its socket.

    `connected` makes a protocol for each connection that `entrance` lets in; `count` says how many
    there are. A front end that is slow to take a connection, or dead, loses it to the others after
    `PAUSE`. `handshake` is the time for a TLS handshake; `wait` delays the start of connections,
    and `waiting` returns how many it delays that have sent something. `pressed` returns whether the
    server is overloaded.
    """

    def __init__(
        self,
        shared: SharedSocket,
        connected: Callable[[Ticket], asyncio.Protocol],
        count: Callable[[], int],
        entrance: Entrance,
        tls: ssl.SSLContext | None = None,
        handshake: float = 10.0,
        wait: Wait = begin_at_once,
        waiting: Callable[[], int] = lambda: 0,
        pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._shared = shared
        self._connected = connected
        self._count = count
        self._entrance = entrance
        self._tls = tls
        self._handshake = handshake if tls else None
        self._wait = wait
        self._wait_to_begin = waiting
        self._pressed = pressed
        self._next: tuple[socket.socket, str] | None = None
        """An accepted connection for which there is no room yet, and its client's address."""
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._listens = False
        """Whether the event loop watches the socket."""
        self._taking: set[asyncio.Task[object]] = set()
        shared.socket.setblocking(False)
        shared.socket.listen(BACKLOG)  # now and not before, because connections can be answered
        self._listen()

    def close(self) -> None:
        """Accept the connections that wait in the kernel, and no more; they all continue."""
        self._shared.tally.leave(self._shared.number)
        self._loop.remove_reader(self._shared.socket)
        while self._take():
            pass  # to close the socket would reset the connections in its queue
        if self._pause is not None:
            self._pause.cancel()
        if self._next is not None:
            connection, host = self._next
            self._entrance.refuse(connection, host, Draining("this server is stopping"))
        self._shared.socket.close()

    @property
    def taking(self) -> bool:
        """Return whether an accepted connection has not been given to its protocol yet."""
        return bool(self._taking)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""

    def _listen(self) -> None:
        self._pause, self._listens = None, True
        self._loop.add_reader(self._shared.socket, self._waiting)

    def _rested(self) -> None:
        """Take the connections that have come meanwhile, or wait for one."""
        self._pause = None
        self._waiting()
        if self._pause is None and not self._listens:
            self._listen()

    def _waiting(self) -> None:
        """Handle waiting connections, of which every front end is notified."""
        for taken in range(self._entrance.at_once):
            count = self._count() + len(self._taking)
            if self._shared.tally.fewest(self._shared.number, count):
                if not self._take():
                    if self._pause is None and (taken or self._listens) and self._pressed():
                        self._after(LONG_REST if taken > 1 else REST, self._rested)
                    return
            # Another front end has fewer connections and is notified too. Stop listening for a
            # moment, or this process would be woken again at once, in a loop, until the other one
            # has accepted.
            elif not taken:
                self._after(PAUSE, self._take_and_listen)
                return
            else:
                return

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        if self._listens:
            self._loop.remove_reader(self._shared.socket)
            self._listens = False
        self._pause = self._loop.call_later(seconds, then)

    def _take_and_listen(self) -> None:
        self._listen()
        self._take()

    def _take(self) -> bool:
        """Accept a connection; return whether there was one."""
        accepted, self._next = self._next or self._accepted(), None
        if accepted is None:
            return False
        connection, host = accepted
        ticket = self._entrance.ticket(host)
        if isinstance(ticket, Ticket):
            self._wait(connection, ticket, partial(self._start, connection, ticket))
        elif self._wait_to_begin() or (self._taking and self._tls is None):
            # Only a connection that was begun can make room. A burst of short requests would be
            # refused otherwise that the server can answer, one after the other, in milliseconds.
            # Some are begun in each turn of the event loop, so the next turn tries again. With a
            # pause of 2 ms, 1,000 requests at once to a server that begins 256 took 1.3 s.
            self._next = accepted
            self._after(0.0, self._take_and_listen)
            return False
        else:
            self._entrance.refuse(connection, host, ticket)
        return True

    def _accepted(self) -> tuple[socket.socket, str] | None:
        """Accept a connection and return it with its client's address, None if there is none."""
        try:
            connection, address = self._shared.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None  # another front end was sooner, or the client has left
        except OSError as error:
            if not self._entrance.no_descriptor(self._shared.socket, error):
                self._after(NO_ROOM, self._listen)
            return None
        return connection, address[0] if address else ""

    def _start(self, connection: socket.socket, ticket: Ticket) -> None:
        self._taking.add(taking := self._loop.create_task(self._begin(connection, ticket)))
        taking.add_done_callback(self._taking.discard)

    async def _begin(self, connection: socket.socket, ticket: Ticket) -> None:
        """After its TLS handshake, if there is one, the connection belongs to its protocol."""
        connection.setblocking(False)  # not before: a refused connection does not need this call
        try:
            with self._entrance.handshake(ticket) if self._tls else nullcontext():
                await self._loop.connect_accepted_socket(
                    lambda: self._connected(ticket),
                    connection,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._handshake,
                )
        except OSError as error:  # TLS errors and timeouts among them
            ticket.leave()
            connection.close()
            log.debug("a connection was lost before its first byte: %s", error)
        except BaseException:
            ticket.leave()
            connection.close()
            raise
