"""Requests over HTTP/1.1 for programs that load a server: one connection, one request at a time.

Talks to 127.0.0.1 only. `source` is the address that a client connects from, so that one machine
can be several clients: all of 127.0.0.0/8 is the machine itself.
"""

import asyncio
import time
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent: path with query, body, and the deadline in milliseconds or None."""

    path: str
    body: bytes
    deadline_ms: int | None = None
    content_type: str = "image/jpeg"

    def head(self) -> bytes:
        """Return the headers of the request."""
        lines = [
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
        ]
        if self.deadline_ms is not None:
            lines.append(f"X-Deadline-Ms: {self.deadline_ms}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """Status (0: no answer), seconds it took, seconds of `Retry-After`, moment it came."""

    status: int
    seconds: float
    retry_after: int | None
    at: float


class Connection(asyncio.Protocol):
    """One connection that asks one request at a time; `usable` until either end closes it."""

    def __init__(self) -> None:
        self.usable = True
        self._data = b""
        self._size: int | None = None
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, message: bytes) -> bytes:
        """Send a request and return the head of its answer; ConnectionError if there is none."""
        self._data, self._size = b"", None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Look whether the answer is complete."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or self._answered is None or self._answered.done():
            return
        if self._size is None:
            length = _header(head, b"content-length")
            self._size = -1 if length is None else int(length)
        whole = body.endswith(b"0\r\n\r\n") if self._size < 0 else len(body) >= self._size
        if whole:
            if _header(head, b"connection") == b"close":
                self.close()
            self._answered.set_result(head)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.usable = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        self._transport.close()


class Connections:
    """Keep-alive connections of one client, opened when none is free.

    A request and its answer cost the client about 40 µs of CPU, because programs that overload a
    server on the same machine must leave it the cores: bytes are prepared once, and of an answer
    only what is needed is read.
    """

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port = port
        self._source = source
        self._free: list[Connection] = []
        self._message = lru_cache(64)(lambda request: request.head() + request.body)

    async def ask(self, request: Request) -> Reply:
        """Send one request; a broken connection is status 0."""
        start = time.monotonic()
        try:
            connection = await self._connection()
            try:
                head = await connection.ask(self._message(request))
            except BaseException:
                connection.close()
                raise
        except OSError:
            return Reply(0, time.monotonic() - start, None, time.monotonic())
        if connection.usable:
            self._free.append(connection)
        now, text = time.monotonic(), _header(head, b"retry-after")
        return Reply(int(head[9:12]), now - start, int(text) if text else None, now)

    def close(self) -> None:
        """Close every connection that is free."""
        for each in self._free:
            each.close()
        self._free.clear()

    async def _connection(self) -> Connection:
        while self._free:
            if (found := self._free.pop()).usable:
                return found
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(
            Connection, "127.0.0.1", self._port, local_addr=(self._source, 0)
        )
        return made


def _header(head: bytes, name: bytes) -> bytes | None:
    """Return the value of a header of an answer, None if it is not there."""
    lowered = head.lower()
    start = lowered.find(b"\r\n" + name + b":")
    if start < 0:
        return None
    return lowered[start + len(name) + 3 :].split(b"\r\n", 1)[0].strip()


def percentile(values: list[float], share: float) -> float | None:
    """Return a percentile of values in any order, in milliseconds; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 1)
