"""How a connection ends when the server wants it to: with an answer that the client can read.

A close while the client still sends makes the kernel reset the connection, and the client loses
what it has not read. So the server closes its own half, and throws away what comes, up to a bound
of bytes and seconds, until the client closes the other half.
"""

import logging
from typing import TYPE_CHECKING

import httptools

from app.connections.cycle import Cycle
from app.connections.guard import Guard
from app.connections.phases import Phase
from app.connections.refusals import refusal
from models.domain.errors import MalformedRequest, ServiceError, SlowHeaders

if TYPE_CHECKING:
    from app.connections.protocol import GuardedProtocol

log = logging.getLogger("darkroom.connections")


LITTLE = 1 << 20
"""Bytes that a client may go on sending whose headers or framing were refused."""


class Ending:
    """Of one connection. `deaf`: what comes from the client is thrown away."""

    __slots__ = ("_connection", "_guard", "_most", "_thrown_away", "deaf")

    def __init__(self, connection: "GuardedProtocol", guard: Guard) -> None:
        self._connection = connection
        self._guard = guard
        self._thrown_away = 0
        self._most = guard.limits.discard_bytes
        self.deaf = False

    def refuse(self, error: ServiceError) -> None:
        """Answer with `error` what cannot become a request, after the requests before it."""
        connection = self._connection
        self.deaf = True
        self._most = LITTLE
        connection.incoming = None
        self._guard.note(error.code, connection.client_key, error.detail)
        if connection.phase is Phase.LINGER:
            connection.transport.abort()  # it has its answer
            return
        cycle = connection.cycle
        own = cycle is not None and cycle.scope is connection.scope
        if cycle is not None and not cycle.response_complete:
            if not own:
                cycle.keep_alive = False  # it is the last one that is answered here
                return
            assert isinstance(cycle, Cycle)
            if cycle.response_started or connection.running is not cycle:
                connection.transport.close()
                return
            disconnect(cycle)
        if not (own and cycle is not None and cycle.response_complete):
            connection.transport.write(refusal(error))
        self.linger()

    def linger(self) -> None:
        """Close this half of the connection, and wait for the client to close the other one."""
        connection, transport = self._connection, self._connection.transport
        incoming = connection.incoming
        self.deaf = incoming is None or not incoming.chunked  # chunks without end are seen as such
        self._guard.phases.enter(connection, Phase.LINGER)
        if transport.can_write_eof():  # not with TLS
            transport.write_eof()
        connection.flow.resume_reading()

    def throw_away(self, size: int) -> None:
        """Count bytes that come from a client that is not listened to."""
        self._thrown_away += size
        if self._thrown_away > self._most:
            self._connection.transport.abort()

    def expire(self, phase: Phase) -> None:
        """The time of `phase` is over."""
        transport = self._connection.transport
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
    """Tell the application that its client is gone."""
    cycle.disconnected = True
    cycle.message_event.set()


def known(error: httptools.HttpParserError) -> ServiceError:
    """What the client gets for it: httptools wraps what the callbacks above raise."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    if cause is not None and not isinstance(cause, httptools.HttpParserError):
        log.error("unhandled error in the parser's callbacks", exc_info=cause)
    return MalformedRequest(f"the request is not valid HTTP/1.1: {cause or error}")
