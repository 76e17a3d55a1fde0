"""Serve one connection: uvicorn's protocol with limits of time and size and with lingering closes.

The limits cost a few dictionary operations a request: no connection has its own timer or task.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app.connections.guard import Guard
from app.connections.http1.answer_stream import AnswerStream
from app.connections.http1.cycle import CLOSE, Cycle
from app.connections.http1.ending import Ending, disconnect, known
from app.connections.http1.framing import target
from app.connections.http1.incoming import Incoming
from app.connections.http1.place import has_ended, phase_of, sends
from app.connections.phases import READING, Phase
from models.domain.errors import MalformedRequest, ServiceError

MOST_AHEAD = 32
"""Requests that a client may send before it has read the first one's answer."""

MOST_BLANK = 1024
"""Bytes of empty lines that may stand before a request."""


class GuardedProtocol(HttpToolsProtocol):
    """The protocol of one connection; `leave` is called once, when the connection is closed."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        guard: Guard,
        client_key: str | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.client_key = client_key
        self.phase = Phase.FRESH
        self.running: Cycle | None = None
        """The request that the application works on, or the last one it worked on."""
        self._guard = guard
        self._leave = leave
        self._ending = Ending(self, guard)
        self.incoming: Incoming | None = None
        """The request that has begun to arrive and is not complete."""
        self._begun = self._blank = 0
        """Requests that have begun to arrive, and bytes of empty lines since the last one."""
        self._ahead = 0
        """Bytes that came while requests waited for the answers before them."""
        self._has_ended = False
        """Whether the client sends no more, though bytes before its end have not been read."""

    def connection_made(self, transport: Any) -> None:
        """Begin to serve; called after the TLS handshake if there is one."""
        super().connection_made(transport)
        self.answers = AnswerStream(transport)
        self._guard.phases.enter(self, Phase.FRESH)
        if CLOSE in self.server_state.default_headers:  # the server ends
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and the requests that wait behind the one that runs."""
        self._guard.phases.leave(self)
        self._leave()
        self.pipeline.clear()
        if self.running is not None and not self.running.response_complete:
            disconnect(self.running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the `on_…` methods below, and check the limits."""
        ending = self._ending
        if ending.discards or self.phase is Phase.LINGER:
            ending.discard(len(data))
        if ending.discards:
            return
        begun, before = self._begun, self.incoming
        if self.pipeline:
            self._ahead += len(data)
            if self._ahead > HIGH_WATER_LIMIT and not self._has_ended:
                self.flow.pause_reading()
        try:
            self.parser.feed_data(data)
            self._check(len(data), before, self._begun - begun)
        except httptools.HttpParserUpgrade:
            ending.discards = True
            self.cycle.keep_alive = False  # httptools has lost its place in the stream
        except httptools.HttpParserError as error:
            ending.refuse(known(error))
        except ServiceError as error:
            ending.refuse(error)
        if self.phase is not Phase.LINGER:
            self.place(begun=self._begun != begun)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's returns None
        """Return whether the connection stays open for the answers to a client that sends no more.

        An answer is lost if the client has left; see `ending.py` for how that is found out.
        """
        return self._ending.half_close()

    def look(self) -> None:
        """Read on if reading pauses and the client sends no more: its end stands behind bytes.

        The kernel's buffer bounds these bytes. Without that, a client that leaves while the server
        waits before it reads a body would be noticed when the server has done its work.
        """
        if self.flow.read_paused and has_ended(self.transport):
            self._has_ended = True
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        """Begin to measure a client that reads more slowly than it is answered."""
        self._guard.phases.watch_writing(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop measuring: the client has read enough."""
        if self.phase is not Phase.CLOSING:
            self._guard.phases.written(self)
        super().resume_writing()

    def _check(self, size: int, before: Incoming | None, begun: int) -> None:
        """Check the limits after `size` bytes, in which `begun` requests began."""
        incoming = self.incoming
        if incoming is None:
            self._blank = self._blank + size if before is None and not begun else 0
            if self._blank > MOST_BLANK:
                raise MalformedRequest("the request begins with too many empty lines")
        elif not begun or (before is None and begun == 1 and incoming.in_head):
            incoming.received(size)

    def on_message_begin(self) -> None:
        """Begin a request with its first byte."""
        super().on_message_begin()
        self._begun += 1
        self.incoming = Incoming(self._guard.limits, self._guard.clock())
        if len(self.pipeline) >= MOST_AHEAD:
            raise MalformedRequest(f"{MOST_AHEAD} requests wait for their answers on a connection")

    def on_url(self, url: bytes) -> None:
        """Take the request's target, or a piece of it."""
        self.incoming.url(url)  # type: ignore[union-attr]  # set by on_message_begin
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are counted and dropped."""
        incoming = self.incoming
        name = incoming.header(name, value)  # type: ignore[union-attr]  # as in on_url
        if incoming.in_head:  # type: ignore[union-attr]  # as in on_url
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Run the request at once, or after the requests before it on this connection."""
        incoming, version = self.incoming, self.parser.get_http_version()
        assert incoming is not None
        incoming.complete(version)
        if self.parser.should_upgrade() and (incoming.length or incoming.chunked):
            raise MalformedRequest("a request with a body may not ask for another protocol")
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"], scope["raw_path"], scope["query_string"] = target(self.url)
        if version != "1.1":
            scope["http_version"] = version
        before = self.cycle
        self.cycle = cycle = Cycle(
            unread=lambda: incoming.unread,
            http_10=version == "1.0",
            scope=scope,
            transport=self.answers,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=incoming.expects,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body; reading pauses while the application has enough of it.

        Reading goes on when the body has come: a client that leaves must be noticed.
        """
        self.incoming.piece(len(body))  # type: ignore[union-attr]  # as in on_url
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.add_body(body)  # type: ignore[attr-defined]  # a Cycle
        if len(cycle.body) > HIGH_WATER_LIMIT and not self._has_ended:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End a request with its last byte."""
        self.incoming = None
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.running = cycle
        if not cycle.answered_early(self._guard.decide):
            self._guard.start(super()._start_asgi_task, cycle, app)

    def on_response_complete(self) -> None:
        """Run the next request, wait for one, or end the connection."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self.place()
            return
        if not self.pipeline:
            self.flow.resume_reading()
        if self.running is not None and self.running.ended():
            self._ending.linger()
        elif self.pipeline:
            following = self.pipeline.pop()
            if not self.pipeline:
                self._ahead = 0
                self.flow.resume_reading()
            self._start_asgi_task(*following)
        else:
            self.place()

    def shutdown(self) -> None:
        """End with the server: after the answers that are owed, or once it is safe.

        A client whose request has begun to arrive, or may be on its way because its last answer is
        less than a second old, gets an answer, which says that its connection ends.
        """
        owes = self.cycle is not None and not self.cycle.response_complete
        if not owes and self.phase is not Phase.LINGER and not self.transport.is_closing():
            young = self._guard.phases.seconds_in(self) < READING
            if young or self.incoming is not None or self.sends():
                self.loop.call_later(READING / 4, self.shutdown)
                return
        super().shutdown()
        if self.phase is Phase.LINGER:
            self.transport.close()
        self.place()

    def place(self, begun: bool = False) -> None:
        """Enter the phase that this connection is in now, again if a request has `begun`."""
        phase = phase_of(self, self._begun)
        if phase is not Phase.LINGER and (phase is not self.phase or begun):
            self._guard.phases.enter(self, phase)
            if phase is Phase.CLOSING and self.unsent():
                self._guard.phases.watch_writing(self)

    def expire(self, phase: Phase) -> None:
        """End the connection, because the time of `phase` is over."""
        self._ending.expire(phase)

    def evict(self) -> None:
        """Close to make room for another connection."""
        self._guard.ended("evicted")
        self._leave()
        self.transport.close()  # not a reset, so that the client sees a regular end
        self.place()

    def sends(self) -> bool:
        """Return whether bytes of the client have come that were not read."""
        return sends(self.transport)

    def body_rate(self, now: float, grace: float) -> float | None:
        """Return the bytes per second of the body that arrives, None if it cannot be blamed."""
        cycle = cast(Cycle, self.cycle)
        return None if self.flow.read_paused else cycle.body_rate(self.incoming, now, grace)

    def shed(self) -> None:
        """Refuse the request, because its body comes slowly and others need the connection."""
        self._ending.shed()

    def unsent(self) -> int:
        """Return the bytes of answers that the client has not read."""
        return self.transport.get_write_buffer_size()

    def stalled(self) -> None:
        """Reset the connection, because the client reads too slowly."""
        self._guard.note("slow_reader", self.client_key, f"{self.unsent()} bytes were not read")
        self.transport.abort()
