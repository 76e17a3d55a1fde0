"""Serve one connection: uvicorn's protocol with limits of time and size, and ends that can be read.

If a server closes a connection while the client still sends, the kernel resets it, and the client
loses the answer. So an answer that comes before a large rest of a body says `Connection: close`;
the server then closes its own half, and discards the bytes of the client until the client closes
too, or for 30 seconds (lingering close). To discard 1 GiB took 0.15 s of CPU time.

A client that closes the connection has left: its requests are cancelled. A client may close its
half first, after its whole request, and wait for the answer; the server sees the same end. So the
server sends the first byte of the answer at once, or amid a streamed answer a leading zero of the
size of the next chunk: the host of a client that has left answers with a reset. With TLS, or amid
an answer that is not in chunks, the end of the client's stream is the end.
"""

import asyncio
import fcntl
import logging
import math
import select
import termios
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from app.admission.counters import ByKey, Counters, Key, Total
from app.connections.limits import BodyRate, ConnectionLimits, framing, target
from app.http.problems import EVERY_ANSWER, answer
from app.http.request import DEPARTURE, Departure
from models.domain.alarms import alarms, interrupted
from models.domain.errors import (
    ConnectionsExhausted,
    HeadersTooLarge,
    MalformedRequest,
    ServiceError,
    SlowHeaders,
    TooManyConnections,
    UrlTooLong,
)

log = logging.getLogger("darkroom.connections")

CLOSE = (b"connection", b"close")

FIRST_BYTE = b"H"
"""The first byte of every answer."""

ZERO = b"0"
"""A digit that may stand before the size of any chunk (RFC 9112, 7.1)."""

RDHUP = getattr(select, "POLLRDHUP", 0)
"""The event that a client sends no more. Linux alone has it."""

SHORT_REST = 1 << 20
"""Bytes of a body that the server reads after the answer in order to keep the connection."""

LITTLE = 1 << 20
"""Bytes that a client may send after its headers or the framing of its body were refused."""

RESET = 0.02
"""Seconds after which the host of a client that has left, on the same machine, has answered the
first byte. The sweep of the table finds later resets."""

MOST_AHEAD = 32
"""Requests that a client may send before it has read the first answer."""


READING = 1.0
"""Seconds in which a client can read its last answer and send its next request."""

LINGER = 30.0
"""Seconds for which a refused client may go on sending data that is discarded, and for which a
client may read the last bytes of a connection that the server has closed."""

MOST_REFUSED = 128
"""Refused connections that stay open for a second, so that their clients can read the reason."""

AT_ONCE = 4
"""Requests that go on in a turn of the event loop after they waited for their bodies: the bodies of
hundreds may come to their end at the same moment, and take milliseconds each to parse."""


class Phase(IntEnum):
    """The event that a connection waits for."""

    IDLE = 0
    """The first byte of a request, or the short rest of a body whose request has been answered."""
    HEAD = 1
    """The end of a request's headers."""
    WORKING = 2
    """The application, which may wait for the rest of the body."""
    ENDING = 3
    """The client's close, after the last answer; the server discards the bytes of the client."""
    REFUSED = 4
    """The client's close, after the refusal of the connection, which is not counted."""


class ConnectionTable:
    """The connections of one process and port; `counters` are shared by all front ends.

    A connection enters a phase at the end of an ordered dictionary, and all connections of a phase
    have the same timeout. So one sweep checks only the first members of each phase, whatever the
    number of connections, and no connection has a timer or a task of its own. `ended` counts the
    connections that the server ended, by the reason. `clock` returns seconds. Call `sweep` every
    half second, or four times in the shortest timeout.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        counters: Counters,
        ended: Callable[[str], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self.ended = ended
        self.clock = clock or asyncio.get_running_loop().time
        self._counters = counters
        self._key = lru_cache(4096)(self._key_of)
        self._members: tuple[dict[GuardedProtocol, float], ...] = tuple({} for _ in Phase)
        self._turns = 0
        """Requests that went on in this turn of the event loop."""
        self._timeouts = {
            Phase.IDLE: limits.idle_timeout,
            Phase.HEAD: limits.header_timeout,
            Phase.ENDING: LINGER,
            Phase.REFUSED: READING,
        }

    def enter(self, connection: "GuardedProtocol", host: str) -> ServiceError | None:
        """Count a new connection of the client at `host`; another connection may be closed for it.

        Return the error if no connection can make room now; the connection is then REFUSED, and
        the oldest refused connection ends if there are too many.
        """
        key = connection.client_key = self._key(host)
        error = self._take(key)
        own = isinstance(error, TooManyConnections)
        if error is not None and self.make_room(key if own else None):
            error = self._take(key)
        if error is None:
            self.move(connection, Phase.IDLE)
            return None
        self.ended(error.code)
        self.move(connection, Phase.REFUSED)
        refused = self._members[Phase.REFUSED]
        if len(refused) > MOST_REFUSED:
            next(iter(refused)).expire()
        return error

    def leave(self, connection: "GuardedProtocol") -> None:
        """Forget a connection that has been closed; further calls do nothing."""
        if self._members[connection.phase].pop(connection, None) is None:
            return
        if connection.phase is not Phase.REFUSED:
            self._counters.add(Total.CONNECTIONS, -1)
            if connection.client_key is not None:
                self._counters.add_for(connection.client_key, ByKey.CONNECTIONS, -1)

    def move(self, connection: "GuardedProtocol", phase: Phase) -> None:
        """Move a connection to the end of `phase`, where its timeout begins anew."""
        self._members[connection.phase].pop(connection, None)
        connection.phase = phase
        self._members[phase][connection] = self.clock()

    def seconds_in(self, connection: "GuardedProtocol") -> float:
        """Return the seconds since a connection has entered its phase."""
        now = self.clock()
        return now - self._members[connection.phase].get(connection, now)

    def sweep(self) -> None:
        """End all connections whose time is over, and look at connections that work."""
        for each in list(self._members[Phase.WORKING]):
            each.look()
        now = self.clock()
        for phase, seconds in self._timeouts.items():
            for each, since in list(self._members[phase].items()):
                if since > now - seconds:
                    break
                each.expire()

    def make_room(self, client: Key | None = None) -> bool:
        """Close the oldest connection of `client`, or of any client, that ends or is idle.

        Return whether there was one. A client has a second to read its last answer; after that,
        the rest of an answer that the client does not read is dropped. An idle connection whose
        request has come but was not read is kept: to close it would reset it.
        """
        now, ending = self.clock(), self._members[Phase.ENDING].items()
        late = [each for each, since in ending if now - since >= READING]
        for each in (*late, *self._members[Phase.IDLE]):
            own = client is None or each.client_key == client
            if own and (each.phase is Phase.ENDING or not each.in_use()):
                self.ended("evicted")
                each.evict()
                self.leave(each)
                return True
        return False

    async def turn(self) -> None:
        """Wait until a request may go on that has waited for its body."""
        while self._turns >= AT_ONCE:  # noqa: ASYNC110 (each turn of the event loop is wanted)
            await asyncio.sleep(0)
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turns += 1

    def _next_turn(self) -> None:
        self._turns = 0

    def _key_of(self, host: str) -> Key | None:
        client = self.limits.client(host)
        return None if client is None else self._counters.key(f"client {client}")

    def _take(self, key: Key | None) -> ServiceError | None:
        """Count another connection, or return the error if a limit does not allow it."""
        counters, most, per_client = self._counters, self.limits.connections, self.limits.per_client
        # The client's own limit comes first: if both are reached, a connection of the client makes
        # room under both, while a connection of another client would be closed in vain.
        if key and not counters.take_for(key, ByKey.CONNECTIONS, 1, per_client):
            return TooManyConnections(
                f"this client has {per_client} connections, as many as one client may have; "
                "use fewer, or close some"
            )
        if not counters.take(Total.CONNECTIONS, 1, most):
            if key:  # both counts or none
                counters.add_for(key, ByKey.CONNECTIONS, -1)
            return ConnectionsExhausted(
                f"the server has {most} connections, as many as it may have "
                "(DARKROOM_MAX_CONNECTIONS); try again later"
            )
        return None


class Cycle(RequestResponseCycle):
    """A request and its answer; `unread` bytes of the body have not come, None in chunks.

    The head of an answer whose length is known leaves with the first piece of its body, in one
    write. Clients of HTTP/1.0 get answers whose end is the end of the connection, because they do
    not know chunks. `lingers` is true when the protocol must close the connection after the answer.
    """

    def __init__(self, table: ConnectionTable, unread: int | None, **rest: Any) -> None:
        super().__init__(**rest)
        self._table = table
        self.unread = unread
        self.received = 0
        """Bytes of the body that have come."""
        self.departure = Departure()
        rest["scope"][DEPARTURE] = self.departure
        self.rate: BodyRate | None = None
        self.lingers = False
        self.first_byte = False
        """Whether the first byte of the answer has been sent."""
        self._error: ServiceError | None = None
        self._held = b""
        """The head of the answer that has not been written."""
        self._left: int | None = None
        """Bytes of the answer that have not been written, None if its length is not known."""
        self._http_10 = rest["scope"]["http_version"] == "1.0"
        self.waiting_for_100_continue &= not self._http_10

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message; raises the error with which `fail` was called."""
        reading = self.more_body
        waits = reading and not self.message_event.is_set()
        if waits:
            if self.rate is None:
                self.rate = BodyRate(self.scope)
                self.rate.piece(self.received, self._table.clock())
            self.rate.wait(self._table.clock())
        message = await super().receive()
        if self._error is not None:
            raise self._error
        if reading and self.rate is not None:
            self.rate.piece(len(cast(Any, message).get("body", b"")), self._table.clock())
        if waits:
            await self._table.turn()
        return message

    def fail(self, error: ServiceError) -> None:
        """Raise an error where the application waits for the body."""
        self._error = error
        self.message_event.set()

    def disconnect(self) -> None:
        """Tell the application that its client has left."""
        self.disconnected = True
        self.message_event.set()
        self.departure.happen()

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the application; raises RuntimeError for a message in wrong order."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._start(cast(Any, message))
        elif not self.response_complete:
            self._go_on(cast(Any, message))
        else:
            raise RuntimeError(f"{message['type']} was sent after the answer")

    def _start(self, message: dict[str, Any]) -> None:
        """Write the head of the answer, or hold it until the first piece of the body is there."""
        status, close = message["status"], False
        lingers = self.more_body and (
            status == HTTPStatus.REQUEST_TIMEOUT
            or self.waiting_for_100_continue
            or not self.keep_alive
            or self.unread is None
            or self.unread > SHORT_REST
        )
        self.response_started, self.waiting_for_100_continue = True, False
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *message.get("headers", ())):
            if HEADER_VALUE_RE.search(value):
                raise RuntimeError(f"a control character in the header {name!r}")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"connection":
                close = close or value.lower() == b"close"
            lines += (name, b": ", value, b"\r\n")
        if not close and (lingers or not self.keep_alive):
            lines.append(b"connection: close\r\n")
        self.keep_alive = self.keep_alive and not close
        if lingers:  # the protocol closes the connection, the cycle must not
            self.lingers = self.keep_alive = True
        if self.scope["method"] == "HEAD" or status in (204, 304):
            self._left = 0
        self.chunked_encoding = self._left is None and not self._http_10
        lines.append(b"transfer-encoding: chunked\r\n\r\n" if self.chunked_encoding else b"\r\n")
        self._held = b"".join(lines)[self.first_byte :]
        if self._left is None:
            self._write(b"")

    def _go_on(self, message: dict[str, Any]) -> None:
        """Write a piece of the body; the last piece ends the answer."""
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self.chunked_encoding:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else b"0\r\n\r\n"
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of the answer is not as long as its Content-Length")
        self._write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _write(self, piece: bytes) -> None:
        head, self._held = self._held, b""
        if head and len(piece) <= HIGH_WATER_LIMIT:
            self.transport.write(head + piece)
            return
        if head:
            self.transport.write(head)
        self.transport.write(piece)

    def add_body(self, piece: bytes) -> None:
        """Keep a piece of the body for the application; a body in one piece is never copied."""
        if not self.body:
            self.body = piece  # type: ignore[assignment]  # uvicorn takes bytes as well
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        self.body += piece


class GuardedProtocol(HttpToolsProtocol):
    """The protocol of one connection, which is a member of `table` while it is open."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        table: ConnectionTable,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.client_key: Key | None = None
        self.phase = Phase.IDLE
        self.running: Cycle | None = None
        """The request that the application works on, or worked on last."""
        self.arriving = False
        """Whether a request has begun to arrive and is not complete."""
        self.in_head = False
        """Whether the head of the request that arrives is not complete."""
        self._lines = self._head_bytes = self._size = 0
        """Lines and bytes of the head, or of the trailers, so far; and the bytes of all of the
        request that came after its first bytes."""
        self._table = table
        self._discards = False
        """Whether the bytes of the client are discarded."""
        self._left_to_discard = math.inf
        self._unread_since = 0.0
        """When writing paused, because the client reads more slowly than it is answered."""
        self._half_closed = False
        """Whether the client sends no more and waits for its last answer."""

    # The connection

    def connection_made(self, transport: Any) -> None:
        """Begin to serve, after the TLS handshake if there is one, or refuse the connection."""
        super().connection_made(transport)
        error = self._table.enter(self, self.client[0] if self.client else "")
        if error is not None:
            self._end_with(error)
        elif CLOSE in self.server_state.default_headers:  # the server ends
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its requests."""
        self._table.leave(self)
        self._leave()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's returns None
        """Return whether the client may wait for an answer, so that the connection stays open."""
        last, running = self.cycle, self.running
        if (
            last is None
            or running is None
            or running.response_complete
            or (running.response_started and not running.chunked_encoding)
            or self.arriving
            or not self.transport.can_write_eof()
        ):
            self._leave()
            return False
        self._half_closed = True
        last.keep_alive = False
        if running.response_started:
            self.transport.write(ZERO)
        else:
            self.transport.write(FIRST_BYTE)
            running.first_byte = True
        self.loop.call_later(RESET, self.look)
        return True

    def look(self) -> None:
        """Check that the client is there, and that the body comes that the application waits for.

        While reading pauses, the end of the connection stands behind bytes that were not read.
        """
        ended = select.POLLERR if self._half_closed else RDHUP
        if (self.flow.read_paused or self._half_closed) and _has(self.transport, ended):
            self._leave()
            self.transport.abort()
        running, limits, now = self.running, self._table.limits, self._table.clock()
        if self.flow.write_paused and now - self._unread_since > limits.body_timeout:
            self._stalled()
        if running is None or running.response_complete or not running.more_body:
            return
        late = running.rate and running.rate.late(now, limits.body_timeout, limits.min_rate)
        if late is not None or alarms().ended:
            running.fail(late or interrupted())

    def in_use(self) -> bool:
        """Return whether a request has come that was not read, or an answer still goes out.

        An answer has a second to go out.
        """
        if self.transport.get_write_buffer_size() and self._table.seconds_in(self) < READING:
            return True
        connection = self.transport.get_extra_info("socket")
        if connection is None:
            return False
        # The sockets of transports cannot be read, and `select` does not tell bytes from their end.
        return any(fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4)))

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than it is answered."""
        self._unread_since = self._table.clock()
        super().pause_writing()

    def _stalled(self) -> None:
        """Reset the connection, because the client does not read its answer."""
        self._table.ended("slow_reader")
        self.transport.abort()

    def evict(self) -> None:
        """Close to make room for another connection.

        A client that reads sees a regular end. The rest of an answer that the client does not read
        is dropped: a transport that closes would keep the connection open, and no limit counts it.
        """
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def expire(self) -> None:
        """End the connection, or refuse its request, because the time of its phase is over."""
        if self.phase is Phase.HEAD:
            seconds = f"{self._table.limits.header_timeout:g} seconds (DARKROOM_HEADER_TIMEOUT)"
            text = f"the headers were not complete after {seconds}; send them at once"
            self._refuse(SlowHeaders(text))
        elif self.transport.get_write_buffer_size():
            self._stalled()
        elif self.phase is Phase.IDLE:
            self._table.ended("idle")
            self.transport.close()
        else:
            self.transport.abort()
        self._place()

    def shutdown(self) -> None:
        """End with the server: after the answers that are owed, or once it is safe.

        A client whose request has begun to arrive, or may be on its way because its last answer is
        less than a second old, gets an answer, which says that its connection ends.
        """
        owes = self.cycle is not None and not self.cycle.response_complete
        refused = self.phase in (Phase.ENDING, Phase.REFUSED)
        if not owes and not refused and not self.transport.is_closing():
            young = self._table.seconds_in(self) < READING
            if young or self.arriving or self.in_use():
                self.loop.call_later(READING / 4, self.shutdown)
                return
        super().shutdown()
        if refused:
            self.transport.close()
        self._place()

    # Requests

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the `on_…` methods below, and check the limits."""
        if self._discards:
            self._left_to_discard -= len(data)
            if self._left_to_discard < 0:
                self.transport.abort()
            return
        before = self.headers
        try:
            self.parser.feed_data(data)
            if self.arriving and self.headers is before:
                self._check_size(len(data))
        except httptools.HttpParserUpgrade:
            self._discards = True
            self.cycle.keep_alive = False  # httptools has lost its place in the stream
        except httptools.HttpParserError as error:
            self._refuse(_known(error))
        except ServiceError as error:
            self._refuse(error)
        self._place(begun=self.arriving and self.headers is not before)

    def _check_size(self, size: int) -> None:
        """Check the head or the chunks after `size` more bytes of a request have come.

        The bytes that came with the first byte of the request are not counted here.

        The frames of chunks, their extensions and trailers may take twice as many bytes as the
        body, and the bytes of a head: tiny chunks cost the server more than they cost the client.
        """
        self._size += size
        most, cycle = self._table.limits.header_bytes, cast(Cycle, self.cycle)
        if self.in_head:
            if self._size > most:
                raise self._large_head()
        elif cycle.unread is None and self._size > 3 * cycle.received + most:
            raise MalformedRequest(
                f"the body of {cycle.received} bytes came in {self._size} bytes; send larger "
                "chunks, without extensions and trailers"
            )

    def on_message_begin(self) -> None:
        """Begin a request with its first byte."""
        super().on_message_begin()
        self.arriving = self.in_head = True
        self._lines = self._head_bytes = self._size = 0
        if len(self.pipeline) >= MOST_AHEAD:
            raise MalformedRequest(f"{MOST_AHEAD} requests wait for their answers on a connection")

    def on_url(self, url: bytes) -> None:
        """Take the request's target, or a piece of it."""
        self.url += url
        self._head_bytes += len(url)
        if self._head_bytes > self._table.limits.url_bytes:
            raise self._large_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are counted and dropped."""
        limits = self._table.limits
        self._lines += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._lines > limits.header_lines:
            raise HeadersTooLarge(
                f"a request may have {limits.header_lines} header lines; send fewer"
            )
        if self._head_bytes > limits.header_bytes:
            raise self._large_head()
        if self.in_head:
            self.headers.append((name.lower(), value))

    def _large_head(self) -> ServiceError:
        """Return the error of a target, or of headers, with too many bytes."""
        limits = self._table.limits
        if not self._lines:
            text = f"a URL may have {limits.url_bytes} bytes; send options as form fields or JSON"
            return UrlTooLong(text)
        return HeadersTooLarge(
            f"the URL and headers of a request may have {limits.header_bytes} bytes; send fewer or "
            "shorter headers"
        )

    def on_headers_complete(self) -> None:
        """Run the request at once, or after the requests before it on this connection."""
        version = self.parser.get_http_version()
        unread, expects = framing(self.headers, version)
        self.in_head = False
        self._lines = self._head_bytes = 0  # trailers have the same limits as headers
        if unread != 0 and self.parser.should_upgrade():
            raise MalformedRequest("a request with a body may not ask for another protocol")
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"], scope["raw_path"], scope["query_string"] = target(self.url)
        if version != "1.1":
            scope["http_version"] = version
        before = self.cycle
        self.cycle = cycle = Cycle(
            self._table,
            unread,
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=expects,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; reading pauses while the application has enough of it."""
        cycle = cast(Cycle, self.cycle)
        cycle.received += len(body)
        if cycle.unread is not None:
            cycle.unread -= len(body)
        if not cycle.response_complete:
            cycle.add_body(body)
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End a request with its last byte; reading goes on, to notice a client that leaves."""
        self.arriving = False
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()
        if not self.pipeline:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        self.tasks.add(task := self.loop.create_task(cycle.run_asgi(app)))
        task.add_done_callback(self.tasks.discard)

    def on_response_complete(self) -> None:
        """Run the next request, wait for a request, or end the connection."""
        self.server_state.total_requests += 1
        running = cast(Cycle, self.running)
        running.body = b""  # type: ignore[assignment]  # else an idle connection would keep it
        if self.transport.is_closing():
            self._place()
        elif running.lingers:
            self._linger()
        elif self.pipeline:
            following = self.pipeline.pop()
            if not self.pipeline:
                self.flow.resume_reading()
            self._start_asgi_task(*following)
        else:
            self.flow.resume_reading()
            self._place()

    # Phases and ends

    def _place(self, begun: bool = False) -> None:
        """Enter the phase that this connection is in now, again if a request has `begun`."""
        cycle = self.cycle
        if self.phase in (Phase.ENDING, Phase.REFUSED):
            return
        if self.transport.is_closing():
            phase = Phase.ENDING
        elif self.arriving and self.in_head:
            phase = Phase.HEAD
        elif cycle is None or cycle.response_complete:
            phase = Phase.IDLE
        else:
            phase = Phase.WORKING
        if phase is not self.phase or begun:
            self._table.move(self, phase)

    def _leave(self) -> None:
        """Drop the requests that wait, and cancel the request that runs."""
        self.pipeline.clear()
        if self.running is not None and not self.running.response_complete:
            self.running.disconnect()

    def _refuse(self, error: ServiceError) -> None:
        """Answer bytes that are no request with `error`, after the requests before them."""
        self._discards = True
        self._left_to_discard = LITTLE
        self.arriving = False
        self._table.ended(error.code)
        cycle = self.cycle
        # The refused bytes may belong to the request of `cycle`, or to the next one of a pipeline,
        # whose refusal has to wait for the answers before it.
        own = cycle is not None and cycle.scope is self.scope
        if cycle is not None and not cycle.response_complete:
            if not own:
                cycle.keep_alive = False  # this request is the last one that is answered
                return
            if cycle.response_started or self.running is not cycle:
                self.transport.close()
                return
            self._leave()
        if own and cycle is not None and cycle.response_complete:
            self._linger()
        else:
            self._end_with(error)

    def _end_with(self, error: ServiceError) -> None:
        """Answer with `error`, and end the connection."""
        reply = answer(error)
        headers = (
            *self.server_state.default_headers,
            *reply.raw_headers,
            *EVERY_ANSWER,
            CLOSE,
        )
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[reply.status_code] + lines + b"\r\n" + bytes(reply.body))
        self._linger()

    def _linger(self) -> None:
        """Close the server's half of the connection, and wait until the client closes the other."""
        self._discards = True
        if self.phase is not Phase.REFUSED:
            self._table.move(self, Phase.ENDING)
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()
        self.flow.resume_reading()


def _known(error: httptools.HttpParserError) -> ServiceError:
    """Return the error that the client gets; httptools wraps errors that its callbacks raise."""
    cause = error.__context__
    if isinstance(cause, ServiceError):
        return cause
    if cause is not None and not isinstance(cause, httptools.HttpParserError):
        log.error("unhandled error in the parser's callbacks", exc_info=cause)
    return MalformedRequest(f"the request is not valid HTTP/1.1: {cause or error}")


def _has(transport: asyncio.BaseTransport, event: int) -> bool:
    """Return whether an event of `select` is true, even if bytes before it were not read."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:  # it was closed meanwhile
        return False
    poll = select.poll()
    poll.register(connection.fileno(), event)
    return any(found & event for _, found in poll.poll(0))
