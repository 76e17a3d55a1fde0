"""A lean HTTP/1.1 client: connections that are kept, with bytes that were prepared once.

A request with a body of 90 kB takes 16 to 22 µs of CPU time; aiohttp takes 107 to 125 µs and httpx
3 ms (`tests/bench/load_clients.py`). So a client on the server's own machine leaves it the cores.
httptools parses the answers.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

MOST_KEPT = 1 << 20
"""Bytes of an answer that are kept; of longer answers the rest is counted only."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server of a URL, and the path before its routes, without a slash at its end."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str

    @classmethod
    def of(cls, url: str, verified: bool = True) -> "Origin":
        """Return the origin of a URL; ValueError if it is none of http or https."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url} is no URL; write http://host:port or https://host:port")
        context = None
        if parts.scheme == "https":
            context = ssl.create_default_context()
            if not verified:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = parts.port or (443 if context else 80)
        return cls(parts.hostname, port, context, parts.path.rstrip("/"))

    def request(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the bytes of a POST request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [f"POST {self.prefix}{path} HTTP/1.1", f"Host: {host}:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@dataclass(frozen=True, slots=True)
class Reply:
    """The status and the body of an answer, at most `MOST_KEPT` bytes of it."""

    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One connection that asks one request at a time; `usable` until either end closes it."""

    def __init__(self) -> None:
        self.usable = True
        self._answered: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    async def ask(self, message: bytes) -> Reply:
        """Send a request and return its answer; ConnectionError if there is none."""
        if not self.usable:
            raise ConnectionError("the connection is closed")
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._kept = 0
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Parse a part of the answer."""
        if self._answered is None or self._answered.done():
            return self.close()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))
            self.close()

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body; httptools calls this."""
        if self._kept < MOST_KEPT:
            self._pieces.append(body)
            self._kept += len(body)

    def on_message_complete(self) -> None:
        """Return the answer; httptools calls this."""
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer
            return
        if not self._parser.should_keep_alive():
            self.close()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(Reply(status, b"".join(self._pieces)))

    def connection_lost(self, _exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.usable = False
        self._fail(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        """Close the connection."""
        self.usable = False
        self._transport.close()

    def _fail(self, error: ConnectionError) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


class Client:
    """Connections to one server; one is opened whenever none is free."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._free: list[Connection] = []
        self._open: set[Connection] = set()

    async def ask(self, message: bytes) -> Reply:
        """Send a request and return its answer; OSError if there is none."""
        connection = await self._connection()
        try:
            reply = await connection.ask(message)
        except BaseException:  # re-raised; an answer may still come, and would be taken for another
            connection.close()
            self._open.discard(connection)
            raise
        if connection.usable:
            self._free.append(connection)
        else:
            self._open.discard(connection)
        return reply

    def close(self) -> None:
        """Close all connections."""
        for each in self._open:
            each.close()
        self._open.clear()
        self._free.clear()

    async def _connection(self) -> Connection:
        while self._free:
            if (found := self._free.pop()).usable:
                return found
            self._open.discard(found)
        origin = self._origin
        _, made = await asyncio.get_running_loop().create_connection(
            Connection, origin.host, origin.port, ssl=origin.tls
        )
        self._open.add(made)
        return made
