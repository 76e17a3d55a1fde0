"""Serve one connection: uvicorn's protocol with limits of time and size, and ends that can be read.

If a server closes a connection while the client still sends, the kernel resets it, and the client
loses the answer. So an answer that comes before a large rest of a body says `Connection: close`;
the server then closes its own half, and discards the bytes of the client until the client closes
too, or for 30 seconds (lingering close). To discard 1 GiB took 0.15 s of CPU time.

A client that closes the connection, or its half of it, has left: its requests are cancelled.
"""

import asyncio
import logging
import resource
import select
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from ipaddress import ip_address
from itertools import chain
from typing import Any, cast

import httptools
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from app.admission.clients import network_of
from app.admission.counters import ByKey, Counters, Key, Total
from app.http.problems import EVERY_ANSWER, answer
from app.http.request import DEPARTURE, FIELDS, STREAM, Departure, StreamWindow
from models.domain.alarms import alarms, interrupted
from models.domain.errors import (
    ConnectionsExhausted,
    HeadersTooLarge,
    MalformedRequest,
    ServiceError,
    SlowBody,
    SlowHeaders,
    TooManyConnections,
    UrlTooLong,
)
from models.settings import Network, Settings

log = logging.getLogger("darkroom.connections")

CLOSE = (b"connection", b"close")

RDHUP = getattr(select, "POLLRDHUP", 0)
"""The event that a client sends no more. Linux alone has it."""

SHORT_REST = 1 << 20
"""Bytes of a body that the server reads after the answer in order to keep the connection."""

MOST_AHEAD = 32
"""Requests that a client may send before it has read the first answer."""

WINDOW = 10.0
"""Seconds of waiting over which the rate of a body is measured; the first check comes at their
end."""

READING = 1.0
"""Seconds in which a client can read its last answer and send its next request."""

LINGER = 30.0
"""Seconds for which a refused client may go on sending data that is discarded."""

AT_ONCE = 4
"""Requests that go on in a turn of the event loop after they waited for their bodies: the bodies of
hundreds may come to their end at the same moment, and take milliseconds each to parse."""

MOST_REFUSED = 128
"""Refused connections that stay open for a second, so that their clients can read the reason."""

WITHOUT_LIMIT = 1 << 20
"""Descriptors that are assumed where the operating system states no limit."""

SPARE_DESCRIPTORS = 256
"""Descriptors that connections never use: for logs, spooled files, fetched URLs and workers."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections. Sizes are in bytes, times in seconds, rates in bytes per second."""

    header_timeout: float
    idle_timeout: float
    body_timeout: float
    min_rate: int
    connections: int
    per_client: int
    trusted: tuple[Network, ...] = ()
    header_bytes: int = 65536
    """Bytes of a URL and its headers."""
    header_lines: int = 100
    url_bytes: int = 32768

    @classmethod
    def of(cls, settings: Settings, descriptors: int) -> "ConnectionLimits":
        """Return the limits for a process that may open `descriptors` files.

        One client never gets more than three quarters of all connections.
        """
        room = max(16, descriptors - SPARE_DESCRIPTORS)
        connections = min(settings.max_connections, room)
        return cls(
            settings.header_timeout,
            settings.idle_timeout,
            settings.body_timeout,
            settings.min_body_rate,
            connections,
            min(settings.max_connections_per_client, max(1, connections * 3 // 4)),
            settings.trusted_proxies,
        )

    def client(self, host: str) -> str | None:
        """Return the client of the connections from `host`, as requests are counted.

        Return None for a trusted proxy, whose connections carry requests of many clients, and for a
        Unix socket.
        """
        client = network_of(host)
        try:
            address = ip_address(client if "/" not in client else host.partition("%")[0])
        except ValueError:  # a Unix socket
            return None
        return None if any(address in network for network in self.trusted) else client


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WITHOUT_LIMIT if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel's own limit may be lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return WITHOUT_LIMIT if soft == resource.RLIM_INFINITY else soft


class Phase(IntEnum):
    """The event that a connection waits for."""

    IDLE = 0
    """The first byte of a request, or the end of a request or an answer that is over."""
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
        self._swept = self.clock()
        self._counters = counters
        self._turns = 0
        self._members: tuple[dict[GuardedProtocol, float], ...] = tuple({} for _ in Phase)
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
        if error is not None and self._make_room(key if own else None):
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
        return self.clock() - self._members[connection.phase][connection]

    def sweep(self) -> None:
        """End all connections whose time is over, and look at connections that work."""
        now = self.clock()
        passed, self._swept = now - self._swept, now
        for each in list(self._members[Phase.WORKING]):
            each.look(passed)
        for phase, seconds in self._timeouts.items():
            for each, since in list(self._members[phase].items()):
                if since > now - seconds:
                    break
                each.expire()

    def _make_room(self, client: Key | None) -> bool:
        """Close the oldest connection of `client`, or of any client, that ends or is idle.

        Return whether there was one. A client has a second to read its last answer; after that,
        the rest of an answer that the client does not read is dropped.
        """
        now = self.clock()
        for phase in (Phase.ENDING, Phase.IDLE):
            for each, since in self._members[phase].items():
                read = phase is Phase.IDLE and not each.transport.get_write_buffer_size()
                own = client is None or each.client_key == client
                if own and (read or now - since >= READING):
                    self.ended("evicted")
                    each.transport.abort()
                    self.leave(each)
                    return True
        return False

    async def turn(self) -> None:
        """Wait until a request may go on that has waited for its body."""
        while self._turns >= AT_ONCE:  # noqa: ASYNC110 (each turn of the event loop is wanted)
            await asyncio.sleep(0)
        if not self._turns:
            asyncio.get_running_loop().call_soon(setattr, self, "_turns", 0)
        self._turns += 1

    def _key(self, host: str) -> Key | None:
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


class JoinedHead:
    """A transport that writes the head of an answer together with the first piece of its body.

    uvicorn writes them apart: two system calls and two packets, which wake the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self.is_closing, self.close = transport.is_closing, transport.close

    def write(self, data: bytes) -> None:
        """Keep the head, or write it with `data`; later pieces go to the transport."""
        if self._head is None:
            self._head = data
        else:
            self._transport.writelines((self._head, data))
            self.write = self._transport.write  # type: ignore[method-assign]


class Cycle(RequestResponseCycle):
    """A request and its answer; `length` is the Content-Length of the body, None in chunks.

    Clients of HTTP/1.0 get answers whose end is the end of the connection, because they do not
    know chunks. `lingers` is true when the protocol must close the connection after the answer.
    """

    def __init__(self, table: ConnectionTable, length: int | None, **rest: Any) -> None:
        super().__init__(**rest)
        self._table = table
        self.length = length
        self.received = 0
        """Bytes of the body that have come."""
        self.body = b""  # type: ignore[assignment]  # a body in one piece is never copied
        self.departure = Departure()
        rest["scope"][DEPARTURE] = self.departure
        self.lingers = False
        self._http_10 = rest["scope"]["http_version"] == "1.0"
        self._error: ServiceError | None = None
        self._waits = False
        """Whether the application waits for the next piece of the body."""
        self._seen = self._measured = 0
        """Bytes of the body that had come at the last look, and where the window began."""
        self._silence = self._waited = 0.0
        """Seconds of waiting since the last piece, and in the present window."""

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message; raises the error with which `fail` was called."""
        self._waits = waits = self.more_body and not self.message_event.is_set()
        message = await super().receive()
        self._waits = False
        self.body = b""  # type: ignore[assignment]  # as above
        if self._error is not None:
            raise self._error
        if waits:
            await self._table.turn()
        return message

    def late(self, passed: float, seconds: float, rate: int) -> SlowBody | None:
        """Return the error of a body that comes too slowly, `passed` seconds after the last call.

        A piece may take `seconds`, and in 10 s of waiting `rate` bytes per second must come; then
        the next 10 s begin. Only time in which the application waits for the client counts. A
        stream (see STREAM) may pause while it waits for answers, and needs the rate only inside an
        image.
        """
        stream: StreamWindow | None = cast(Any, self.scope).get(STREAM)
        if self.received != self._seen or (stream is not None and stream.in_flight):
            self._seen, self._silence = self.received, 0.0
        if not self._waits or (stream is not None and stream.in_flight):
            return None
        self._silence += passed
        self._waited += passed
        if self._silence >= seconds:
            return SlowBody(f"no body data for {seconds:g} seconds; send it again")
        if self._waited < WINDOW:
            return None
        came, waited = self.received - self._measured, self._waited
        self._measured, self._waited = self.received, 0.0
        if came < rate * waited and (stream is None or stream.inside_item):
            return SlowBody(
                f"{came} bytes of the body came in {waited:.0f} seconds; at least "
                f"{rate} per second are expected; send it again"
            )
        return None

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
        """Send a message of the application, and decide whether the connection goes on."""
        started = self.response_started
        if self.more_body and not (started or self.disconnected):
            self.lingers = (
                cast(Any, message)["status"] == HTTPStatus.REQUEST_TIMEOUT
                or self.waiting_for_100_continue
                or not self.keep_alive
                or self.length is None
                or self.length - self.received > SHORT_REST
            )
            self.keep_alive = self.keep_alive and not self.lingers
        if self._http_10:
            self.chunked_encoding = False
            self.expected_content_length = len(cast(Any, message).get("body", b""))
        # Answers in HTTP/1.0 announce no length to wait for, and answers to HEAD have no body.
        joins = not (started or self._http_10 or self.scope["method"] == "HEAD")
        if joins:
            joined = self.transport = cast(asyncio.Transport, JoinedHead(self.transport))
        await super().send(message)
        if joins and self.chunked_encoding is not False:
            joined.write(b"")  # the body may come later, or not at all
        if self.lingers and not started:  # the protocol closes the connection, the cycle must not
            self.keep_alive = True


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
        self._size = 0
        """Bytes of the request that came after its first bytes."""
        self._table = table
        self._discards = False
        """Whether the bytes of the client are discarded."""
        self._unread = 0.0
        """Seconds in which the client has not read its answer."""

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

    def look(self, passed: float) -> None:
        """Check that the client is there, reads its answer, and sends the body that is awaited.

        `passed` seconds have passed since the last look. While reading pauses, the end of the
        connection stands behind bytes that were not read.
        """
        if self.flow.read_paused and _has_ended(self.transport):
            self._leave()
            self.transport.abort()
        limits, running = self._table.limits, self.running
        self._unread = self._unread + passed if self.flow.write_paused else 0.0
        if self._unread > limits.body_timeout:
            self._table.ended("slow_reader")
            self.transport.abort()
        if running is not None and running.more_body and not running.response_complete:
            late = running.late(passed, limits.body_timeout, limits.min_rate)
            if late is not None or alarms().ended:
                running.fail(late or interrupted())

    def expire(self) -> None:
        """End the connection, or refuse its request, because the time of its phase is over."""
        if self.phase is Phase.HEAD:
            seconds = f"{self._table.limits.header_timeout:g} seconds (DARKROOM_HEADER_TIMEOUT)"
            text = f"the headers were not complete after {seconds}; send them at once"
            self._refuse(SlowHeaders(text))
        elif self.transport.get_write_buffer_size():
            self._table.ended("slow_reader")
            self.transport.abort()
        elif self.phase is Phase.IDLE:
            self._table.ended("idle")
            self.transport.close()
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """End with the server: after the answers that are owed, or once it is safe.

        A client whose request has begun to arrive, or may be on its way because its last answer is
        less than a second old, gets an answer, which says that its connection ends.
        """
        open_ = self.phase in (Phase.IDLE, Phase.HEAD) and not self.transport.is_closing()
        if self.phase is Phase.WORKING:
            self.cycle.keep_alive = False
        elif open_ and (self.arriving or self._table.seconds_in(self) < READING):
            self.loop.call_later(READING / 4, self.shutdown)
        else:
            self.transport.close()

    # Requests

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the `on_…` methods below, and check the limits.

        The frames of chunks, their extensions and trailers may take twice as many bytes as the
        body, and the bytes of a head: tiny chunks cost the server more than they cost the client.
        """
        if self._discards:
            return
        self._size += len(data)
        try:
            self.parser.feed_data(data)
            body = 0 if self.in_head or self.cycle is None else cast(Cycle, self.cycle).received
            if self.arriving and self._size > 3 * body + self._table.limits.header_bytes:
                raise (
                    self._large_head()
                    if self.in_head
                    else MalformedRequest(
                        f"the body of {body} bytes came in {self._size} bytes; send larger chunks, "
                        "without extensions and trailers"
                    )
                )
        except httptools.HttpParserUpgrade:
            self._discards = True
            self.cycle.keep_alive = False  # httptools has lost its place in the stream
        except httptools.HttpParserError as error:
            self._refuse(_known(error))
        except ServiceError as error:
            self._refuse(error)
        if self.in_head and self.phase is Phase.IDLE:
            self._table.move(self, Phase.HEAD)

    def on_message_begin(self) -> None:
        """Begin a request with its first byte; the bytes that came with it are not counted."""
        super().on_message_begin()
        self.arriving = self.in_head = True
        self._size = 0
        if len(self.pipeline) >= MOST_AHEAD:
            raise MalformedRequest(f"{MOST_AHEAD} requests wait for their answers on a connection")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are dropped."""
        if self.in_head:
            self.headers.append((name.lower(), value))

    def _large_head(self) -> ServiceError:
        """Return the error of a URL, or of headers, with too many bytes."""
        limits = self._table.limits
        if len(self.url) > limits.url_bytes:
            text = f"a URL may have {limits.url_bytes} bytes; send options as form fields or JSON"
            return UrlTooLong(text)
        return HeadersTooLarge(
            f"the URL and headers of a request may have {limits.header_bytes} bytes in "
            f"{limits.header_lines} lines; send fewer or shorter headers"
        )

    def on_headers_complete(self) -> None:
        """Run the request at once, or after the requests before it on this connection."""
        limits, headers = self._table.limits, self.headers
        if (
            len(self.url) > limits.url_bytes
            or len(headers) > limits.header_lines
            or len(self.url) + sum(map(len, chain.from_iterable(headers))) > limits.header_bytes
        ):
            raise self._large_head()
        fields, version = dict(reversed(headers)), self.parser.get_http_version()
        parsed, scope = httptools.parse_url(self.url), cast(Any, self.scope)
        scope[FIELDS] = headers, fields  # so that `header` need not read the headers again
        raw = parsed.path or b"/"
        path = raw.decode("ascii")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = raw, parsed.query or b""
        scope["http_version"] = version
        expects = version != "1.0" and fields.get(b"expect", b"").lower() == b"100-continue"
        # httptools has checked that the length is a number, and alone.
        length = int(fields.get(b"content-length", b"0").lstrip(b"0") or b"0")
        chunked = b"transfer-encoding" in fields
        if (length or chunked) and self.parser.should_upgrade():  # httptools would drop the body
            raise MalformedRequest("a request with a body may not ask for another protocol")
        self.in_head = False
        before = self.cycle
        self.cycle = cycle = Cycle(
            self._table,
            None if chunked else length,
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
        if cycle.body and isinstance(cycle.body, bytes):
            cycle.body = bytearray(cycle.body)  # to which each of many small chunks is appended
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request with its last byte; reading goes on, to notice a client that leaves."""
        self.arriving = False
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        self._table.move(self, Phase.WORKING)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Run the next request, wait for a request, or end the connection."""
        self.server_state.total_requests += 1
        running = cast(Cycle, self.running)
        running.body = b""  # type: ignore[assignment]  # else an idle connection would keep it
        if self.transport.is_closing():
            self._table.move(self, Phase.IDLE)
        elif running.lingers:
            self._linger()
        elif self.pipeline:
            following = self.pipeline.pop()
            if not self.pipeline:
                self.flow.resume_reading()
            self._start_asgi_task(*following)
        else:
            self.flow.resume_reading()
            self._table.move(self, Phase.HEAD if self.in_head else Phase.IDLE)

    # Ends

    def _leave(self) -> None:
        """Drop the requests that wait, and cancel the request that runs."""
        self.pipeline.clear()
        if self.running is not None and not self.running.response_complete:
            self.running.disconnect()

    def _refuse(self, error: ServiceError) -> None:
        """Answer bytes that are no request with `error`, after the requests before them."""
        cycle, body = self.cycle, self.arriving and not self.in_head
        self._discards, self.arriving, self.in_head = True, False, False
        self._table.ended(error.code)
        if cycle is None or (cycle.response_complete and not body):
            self._end_with(error)
        elif cycle.response_complete:
            self._linger()
        elif not body:
            cycle.keep_alive = False  # this request is the last one that is answered
        elif cycle.response_started or self.running is not cycle:
            self.transport.close()
        else:
            self._leave()
            self._end_with(error)

    def _end_with(self, error: ServiceError) -> None:
        """Answer with `error`, and end the connection."""
        reply = answer(error)
        headers = (*self.server_state.default_headers, *reply.raw_headers, *EVERY_ANSWER, CLOSE)
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


def _has_ended(transport: asyncio.BaseTransport) -> bool:
    """Return whether the client sends no more, even if bytes before that were not read."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:  # it was closed meanwhile
        return False
    poll = select.poll()
    poll.register(connection.fileno(), RDHUP)
    return any(found & RDHUP for _, found in poll.poll(0))
