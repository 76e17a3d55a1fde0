"""Accept connections of a shared socket so that the front end with the fewest takes the next.

Left to the kernel, the process that wakes first takes nearly all: 119 of 128, with four front ends.
"""

import asyncio
import logging
import mmap
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from app.connections.entrance import Entrance, Ticket
from app.system.processes import is_alive

log = logging.getLogger("darkroom.acceptor")

PAUSE = 0.002
"""Seconds in which a front end with fewer connections may accept before this one does."""

ABSENT = np.iinfo(np.int32).max
"""The count of a front end that does not accept."""

NO_ROOM = 0.1
"""Seconds until the next try after one that failed: for too many open files, say."""


class Balance(Protocol):
    """The distribution of connections over the front ends."""

    def fewest(self, number: int, count: int) -> bool:
        """Store the `count` of front end `number`; return whether no known count is lower."""

    def leave(self, number: int) -> None:
        """Note that front end `number` accepts no more connections."""


class Alone:
    """The balance of a server that has one process."""

    def fewest(self, _number: int, _count: int) -> bool:
        """Return True: there is no other one."""
        return True

    def leave(self, number: int) -> None:
        """Do nothing: no other front end takes connections."""


class ConnectionCounts:
    """Connection counts of `n` front ends, in memory that they share as a descriptor.

    A rolling restart needs two places for each front end: the old process and the new one.
    """

    def __init__(self, fd: int, n: int) -> None:
        self.fd = fd
        memory = mmap.mmap(fd, mmap.PAGESIZE)
        self._counts = np.frombuffer(memory, np.int32, n)
        self._pids = np.frombuffer(memory, np.int32, n, offset=mmap.PAGESIZE // 2)

    @classmethod
    def create(cls, n: int) -> "ConnectionCounts":
        """Create counts of zero. Linux only."""
        fd = os.memfd_create("darkroom-tally", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        return cls(fd, n)

    def enter(self, number: int) -> int:
        """Return the place of front end `number`, in the first half or its other one in the second.

        What a process that has ended left in either is forgotten.
        """
        places = (number, number + len(self._counts) // 2)
        for place in places:
            if not self._pids[place] or not is_alive(int(self._pids[place])):
                self.leave(place)
        # If processes that still run have both places, the new one takes over the first: a wrong
        # count makes the balance worse, and nothing else.
        free = next((each for each in places if not self._pids[each]), number)
        self._counts[free], self._pids[free] = 0, os.getpid()
        return free

    def leave(self, number: int) -> None:
        """Note that front end `number` accepts no more, so that no other one waits for it."""
        self._counts[number], self._pids[number] = ABSENT, 0

    def fewest(self, number: int, count: int) -> bool:
        """Store the `count` of front end `number`; return whether no known count is lower."""
        self._counts[number] = count
        return bool(count <= self._counts.min())

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


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
    `PAUSE`. `handshake` is the time for a TLS handshake; `wait` delays the start of connections.
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
    ) -> None:
        self._shared = shared
        self._connected = connected
        self._count = count
        self._entrance = entrance
        self._tls = tls
        self._handshake = handshake if tls else None
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._taking: set[asyncio.Task[object]] = set()
        shared.socket.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no more connections; those that were accepted continue."""
        self._shared.tally.leave(self._shared.number)
        self._loop.remove_reader(self._shared.socket)
        if self._pause is not None:
            self._pause.cancel()
            self._take()  # a client waits, or another front end has accepted it
            self._pause.cancel()
        self._shared.socket.close()

    @property
    def taking(self) -> bool:
        """Return whether an accepted connection has not been given to its protocol yet."""
        return bool(self._taking)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._shared.socket, self._waiting)

    def _waiting(self) -> None:
        """Handle waiting connections, of which every front end is notified."""
        for taken in range(self._entrance.at_once):
            count = self._count() + len(self._taking)
            if self._shared.tally.fewest(self._shared.number, count):
                if not self._take():
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
        self._loop.remove_reader(self._shared.socket)
        self._pause = self._loop.call_later(seconds, then)

    def _take_and_listen(self) -> None:
        self._listen()
        self._take()

    def _take(self) -> bool:
        """Accept a connection; return whether there was one."""
        try:
            connection, address = self._shared.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # another front end was sooner, or the client has left
        except OSError as error:
            if not self._entrance.no_descriptor(self._shared.socket, error):
                self._after(NO_ROOM, self._listen)
            return False
        ticket = self._entrance.enter(connection, address[0] if address else "")
        if ticket is not None:
            self._wait(connection, ticket, partial(self._start, connection, ticket))
        return True

    def _start(self, connection: socket.socket, ticket: Ticket) -> None:
        self._taking.add(taking := self._loop.create_task(self._begin(connection, ticket)))
        taking.add_done_callback(self._taking.discard)

    async def _begin(self, connection: socket.socket, ticket: Ticket) -> None:
        """After its TLS handshake, if there is one, the connection belongs to its protocol."""
        connection.setblocking(False)  # not before: a refused connection does not need this call
        try:
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
