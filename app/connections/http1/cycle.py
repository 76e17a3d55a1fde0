"""Run one request and send its answer, as uvicorn does, with two rules of HTTP that uvicorn lacks.

Clients of HTTP/1.0 get answers whose end is the end of the connection, because they do not know
chunks. An answer that comes before the whole body has arrived announces the end of the connection,
unless the rest of the body is short. The protocol then goes on reading for a while, because a
client that is still sending would otherwise see a reset instead of the answer.
"""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any, cast

from starlette.types import Scope
from uvicorn._types import ASGISendEvent, HTTPResponseBodyEvent, HTTPResponseStartEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.connections.body_rate import owes_answers
from app.connections.early_answer import Decide
from app.connections.http1.incoming import Incoming
from app.http.departure import DEPARTURE, Departure

SHORT_REST = 1 << 20
"""Bytes of a body that the server reads after the answer in order to keep the connection."""

CLOSE = (b"connection", b"close")


class Cycle(RequestResponseCycle):
    """One request; `unread` returns the bytes of its body that have not arrived, None if unknown.

    `lingers` is true when the protocol must close the connection after the answer.
    """

    def __init__(self, *, unread: Callable[[], int | None], http_10: bool, **rest: Any) -> None:
        super().__init__(**rest)
        self.departure = Departure()
        rest["scope"][DEPARTURE] = self.departure
        self._unread = unread
        self._http_10 = http_10
        self._sized = False
        self.lingers = False
        if http_10:
            self.waiting_for_100_continue = False  # HTTP/1.0 has no interim answers

    def send(self, message: ASGISendEvent) -> Coroutine[Any, Any, None]:
        """Send a message of the application; most answers take the first branch."""
        if message["type"] == "http.response.start" and self.scope["method"] != "HEAD":
            self.transport.hold()  # type: ignore[attr-defined]  # an AnswerStream
        if not (self.more_body or self._http_10) or self.response_complete:
            return super().send(message)
        if not self.response_started and message["type"] == "http.response.start":
            return self._send_start(message)
        if self._http_10 and not self._sized:
            body = cast(HTTPResponseBodyEvent, message)
            self.expected_content_length = len(body.get("body", b""))
        return super().send(message)

    @property
    def unframed(self) -> bool:
        """Return whether the answer has begun, and ends with the connection."""
        return self.response_started and self._http_10 and not self._sized

    def add_body(self, piece: bytes) -> None:
        """Keep a piece of the body for the application; a body in one piece is never copied."""
        if not self.body:
            self.body = piece  # type: ignore[assignment]  # uvicorn takes bytes as well
            return
        if isinstance(self.body, bytes):
            self.body = bytearray(self.body)
        self.body += piece

    def ended(self) -> bool:
        """Return `lingers` after the answer; bytes of the body that were not read are let go.

        Else an idle connection would keep up to 256 KiB until its next request.
        """
        self.body = b""  # type: ignore[assignment]  # as in `add_body`
        return self.lingers

    def answered_early(self, decide: Decide) -> bool:
        """Return whether `decide` answered the headers; the answer then has been written whole."""
        # HTTP/1.0 needs another head, and a client that does not read its earlier answers must not
        # get more into its buffer: the application handles both cases.
        if self._http_10 or self.flow.write_paused:
            return False
        scope: Any = self.scope
        early = decide(scope)
        if early is None:
            return False
        lingers = self.more_body and self._too_much_to_read()
        closes = lingers or not self.keep_alive
        leaving = CLOSE in self.default_headers
        more = [*self.default_headers, CLOSE] if closes and not leaving else self.default_headers
        self.response_started = self.response_complete = True
        self.transport.write(early.message(more))
        if lingers:
            self.lingers = self.keep_alive = True
        elif closes or leaving:
            self.transport.close()
        self.on_response()
        return True

    def body_rate(self, incoming: Incoming | None, now: float, grace: float) -> float | None:
        """Return the rate of the body in bytes per second, None if the client need not send now."""
        if incoming is None or owes_answers(cast(Scope, self.scope)):
            return None
        return incoming.rate(now, grace)

    async def _send_start(self, message: HTTPResponseStartEvent) -> None:
        headers = list(message.get("headers", ()))
        self._sized = any(name.lower() == b"content-length" for name, _ in headers)
        if self._http_10 and not self._sized:
            self.chunked_encoding = False
        late = message["status"] == HTTPStatus.REQUEST_TIMEOUT
        lingers = self.more_body and (late or self._too_much_to_read())
        if lingers:
            message = {**message, "headers": [*headers, CLOSE]}
        await super().send(message)
        if lingers:
            self.lingers = self.keep_alive = (
                True  # the protocol closes the connection, uvicorn's cycle must not
            )

    def _too_much_to_read(self) -> bool:
        if self.waiting_for_100_continue or not self.keep_alive:
            return True
        unread = self._unread()
        return unread is None or unread > SHORT_REST
