"""Refuse first requests under overload on the bare socket, before a transport and a protocol exist.

A transport, a protocol and a task cost more CPU time than the refusal itself, and under overload
nearly every new connection brings a request that is refused. So its head is looked at in the
socket's buffer (MSG_PEEK), and if the headers alone are enough to refuse it, the answer is written
to the socket. In all other cases nothing has been consumed, and the connection begins as usual: the
protocol alone decides about requests that are incomplete, wrong or not refused.
"""

import socket
from collections.abc import Callable, Sequence

import httptools
from starlette.types import Scope

from app.connections.bare.discarded_connection import PIECE, dropped
from app.connections.bare.silent_connections import Refused
from app.connections.early_answer import EarlyAnswer
from app.connections.guard import Guard
from app.connections.http1.cycle import CLOSE, SHORT_REST
from app.connections.http1.framing import target
from app.connections.http1.incoming import Incoming
from app.connections.limits import ConnectionLimits
from models.domain.errors import ServiceError

Headers = Sequence[tuple[bytes, bytes]]

MOST_HEADS = 64
"""Heads that are remembered; a flood repeats a few, and clients could send endlessly many."""

LARGEST_HEAD = 1024
"""Bytes of a head that is remembered."""

LARGEST_WHOLE = 1 << 16
"""Bytes of a request of which a larger one is not discarded before its client has had time to read
the answer: the kernel then takes no more of it than fits the socket's buffer."""

_NOW = int(socket.MSG_DONTWAIT)

_WITH_END: int = _NOW | getattr(socket, "MSG_MORE", 0)
"""Linux keeps the bytes until the end of the connection, and sends both in one packet."""


class BareRefusals:
    """Refuses requests by `guard.decide`.

    `default_headers` returns the header lines that every answer of the server begins with.
    """

    def __init__(self, guard: Guard, default_headers: Callable[[], Headers]) -> None:
        self._guard = guard
        self._default_headers = default_headers
        self._heads: dict[bytes, Head] = {}
        """Heads that were parsed by `_limits`, by their bytes: they depend on nothing else."""
        self._limits = guard.limits

    def __call__(self, connection: socket.socket, host: str, data: bytes) -> Refused | None:
        """Answer the request that begins with `data`, in the socket's buffer, if it is refused.

        Return what is left of the connection, or None if nothing was read or written.
        """
        length = data.find(b"\r\n\r\n") + 4
        if length < 4:
            return None
        head = self._head(data[:length])
        if head is None or head.scope is None:
            return None
        whole = length + (head.incoming.length or 0)
        early = self._guard.decide({**head.scope, "client": (host, 0) if host else None})
        if early is None:
            return None
        keeps = head.keeps and whole - len(data) <= SHORT_REST
        return self._answer(connection, early, keeps, whole)

    def _head(self, data: bytes) -> "Head | None":
        """Return a parsed head, or None if it is wrong."""
        limits = self._guard.limits
        if limits is not self._limits:
            self._heads.clear()
            self._limits = limits
        head = self._heads.get(data)
        if head is None:
            try:
                head = Head(limits, data)
            except (ServiceError, httptools.HttpParserError, httptools.HttpParserUpgrade):
                return None
            if len(self._heads) >= MOST_HEADS:
                self._heads.clear()
            if len(data) <= LARGEST_HEAD:
                self._heads[data] = head
        return head

    def _answer(
        self, connection: socket.socket, early: EarlyAnswer, keeps: bool, whole: int
    ) -> Refused:
        """Write the answer and discard what has come of the request, which has `whole` bytes."""
        lines = self._default_headers()
        if CLOSE in lines:
            keeps = False
        elif not keeps:
            lines = [*lines, CLOSE]
        message = early.message(lines)
        large = not keeps and whole > LARGEST_WHOLE
        try:
            if connection.send(message, _WITH_END if large else _NOW) == len(message):
                if large:
                    connection.shutdown(socket.SHUT_WR)
                    return Refused(keeps, unread=whole)
                # What came behind the last request is discarded as well, because a full close with
                # unread bytes would send a reset (see `ending.py`).
                came = dropped(connection, whole if keeps else PIECE) or 0
                if not keeps and (came != whole or came == PIECE):
                    connection.shutdown(socket.SHUT_WR)
                    return Refused(keeps, unread=max(1, whole - came))
                return Refused(keeps, unread=whole - came)
        except OSError:  # the client has left
            pass
        return Refused(keeps=False, unread=0)


class Head:
    """One request's head, checked as the protocol checks it; `scope` is None for unusual ones.

    The scope lacks the client. `data` is the whole head. Raises ServiceError and the errors of
    httptools.
    """

    def __init__(self, limits: ConnectionLimits, data: bytes) -> None:
        self.scope: Scope | None = None
        self.keeps = False
        """Whether the client wants to keep the connection, and waits for no `100 Continue`."""
        self.incoming = Incoming(limits)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Take the target, or a piece of it."""
        self.incoming.url(url)
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._headers.append((self.incoming.header(name, value), value))

    def on_headers_complete(self) -> None:
        """Check the head and make the scope."""
        parser, incoming = self._parser, self.incoming
        version = parser.get_http_version()
        incoming.complete(version)
        if version != "1.1" or incoming.chunked or parser.should_upgrade():
            return
        path, raw_path, query = target(self._url)
        self.keeps = parser.should_keep_alive() and not incoming.expects
        self.scope = {
            "type": "http",
            "http_version": version,
            "scheme": "http",
            "method": parser.get_method().decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }
