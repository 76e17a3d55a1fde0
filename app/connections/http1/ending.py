"""End a connection so that the client can read its last answer.

If the server closes a connection while the client still sends, the kernel resets it, and the client
loses the data that it has not read. So the server closes its own half (lingering close), and
discards what arrives until the client closes the other half. Bytes and seconds of that are bounded.

A client may close its half first, after its whole request, and then wait for the answer. The server
sees the same when the client has left, so it sends a byte of the answer at a time (`AnswerStream`)
and looks for the reset with which the host of a client that has left answers: within a millisecond
on the same machine, and after one way there and back elsewhere. With TLS the end of the client's
stream is the end of the connection.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import httptools
from starlette.types import Scope

from app.connections.body_rate import stream_of
from app.connections.guard import Guard
from app.connections.http1.cycle import Cycle
from app.connections.http1.place import has_left, is_acknowledged
from app.connections.phases import Phase
from app.connections.refusals import refusal
from app.connections.slow_bodies import slowest
from models.domain.errors import MalformedRequest, ServiceError, SlowHeaders

if TYPE_CHECKING:
    from app.connections.http1.protocol import GuardedProtocol

log = logging.getLogger("darkroom.connections")


LITTLE = 1 << 20
"""Bytes that a client may send after its headers or the framing of its body were refused."""

FIRST_LOOK = 0.005
"""Seconds between the first byte that is sent to a client that may have left, and the look whether
its host has answered with a reset. Each further pair takes twice as long."""

LONGEST_LOOK = 0.5
"""Seconds between two looks at most."""


class Ending:
    """The end of one connection. While `discards` is true the client's bytes are discarded."""

    __slots__ = ("_connection", "_discarded", "_guard", "_most", "discards")

    def __init__(self, connection: "GuardedProtocol", guard: Guard) -> None:
        self._connection = connection
        self._guard = guard
        self._discarded = 0
        self._most = guard.limits.discard_bytes
        self.discards = False

    def refuse(self, error: ServiceError) -> None:
        """Answer bytes that are no request with `error`, after the requests before them."""
        connection = self._connection
        self.discards = True
        self._most = LITTLE
        connection.incoming = None
        self._guard.note(error.code, connection.client_key, error.detail)
        if connection.phase is Phase.LINGER:
            connection.transport.abort()  # the client has had its answer
            return
        cycle = connection.cycle
        # The refused bytes may belong to the request of `cycle`, or to the next one of a pipeline,
        # whose refusal has to wait for the answers before it.
        own = cycle is not None and cycle.scope is connection.scope
        if cycle is not None and not cycle.response_complete:
            if not own:
                cycle.keep_alive = False  # this request is the last one that is answered
                return
            assert isinstance(cycle, Cycle)
            if cycle.response_started or connection.running is not cycle:
                connection.transport.close()
                return
            disconnect(cycle)
        if not (own and cycle is not None and cycle.response_complete):
            connection.transport.write(refusal(error))
        self.linger()

    def half_close(self) -> bool:
        """Handle the end of the client's stream; return whether the connection stays open."""
        connection = self._connection
        last, running, transport = connection.cycle, connection.running, connection.transport
        owed = last is not None and not last.response_complete and connection.incoming is None
        # What ends with the connection has no byte that is known before: each write tells.
        if not owed or running is None or running.unframed or not transport.can_write_eof():
            return False
        last.keep_alive = False
        self._look(FIRST_LOOK)
        return True

    def _look(self, seconds: float) -> None:
        """Send a byte to a client that may have left, and look again after some seconds."""
        connection, transport = self._connection, self._connection.transport
        if has_left(transport):
            transport.abort()
        if not transport.is_closing() and connection.running is not None:
            connection.answers.probe(connection.running)
            later = min(2 * seconds, LONGEST_LOOK)
            asyncio.get_running_loop().call_later(seconds, self._look, later)

    def shed(self) -> None:
        """Refuse the request as one of the slowest, unless its body came to its end meanwhile."""
        if self._connection.phase is Phase.BODY:
            self.refuse(slowest())
            self._connection.place(begun=True)

    def linger(self) -> None:
        """Close the server's half of the connection, and wait until the client closes the other."""
        connection, transport = self._connection, self._connection.transport
        incoming = connection.incoming
        self.discards = (
            incoming is None or not incoming.chunked
        )  # endless chunks must still be recognised
        self._guard.phases.enter(connection, Phase.LINGER)
        if transport.can_write_eof():  # not with TLS
            transport.write_eof()
        connection.flow.resume_reading()

    def discard(self, size: int) -> None:
        """Count bytes that are discarded, and reset the connection when there are too many."""
        self._discarded += size
        if self._discarded > self._most:
            self._connection.transport.abort()

    def expire(self, phase: Phase) -> None:
        """End the connection, or refuse its request, because the time of `phase` is over."""
        transport = self._connection.transport
        if phase is Phase.CLOSING:
            if not self._connection.unsent() and is_acknowledged(transport):
                transport.abort()
            else:
                self._guard.phases.enter(self._connection, phase)  # its reading is watched
            return
        if phase is Phase.HEAD:
            seconds = self._guard.limits.header_timeout
            self.refuse(
                SlowHeaders(
                    f"the headers were not complete after {seconds:g} seconds "
                    "(DARKROOM_HEADER_TIMEOUT); send them at once"
                )
            )
        elif phase in (Phase.FRESH, Phase.ONCE, Phase.KEPT):
            self._guard.ended("idle")
            transport.close()
        elif phase in (Phase.LINGER, Phase.DISCARD):
            transport.abort()
        self._connection.place(begun=True)


def disconnect(cycle: Cycle) -> None:
    """Tell the application that its client has left."""
    cycle.disconnected = True
    cycle.message_event.set()
    stream = stream_of(cast(Scope, cycle.scope))
    cycle.departure.happen()
    if stream is not None:  # it may read nothing at present, so the event above is not enough
        stream.left.set()


def known(error: httptools.HttpParserError) -> ServiceError:
    """Return the error that the client gets; httptools wraps errors that its callbacks raise."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    if cause is not None and not isinstance(cause, httptools.HttpParserError):
        log.error("unhandled error in the parser's callbacks", exc_info=cause)
    return MalformedRequest(f"the request is not valid HTTP/1.1: {cause or error}")
