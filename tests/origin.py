"""A small origin on 127.0.0.1 for tests of URL fetch: real sockets, scripted answers.

It runs on the test's own event loop, and answers paths without a script with 404.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat

Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as the origin received it."""

    target: str
    headers: dict[str, str]


@dataclass(slots=True)
class Exchange:
    """A request and the connection for its answer."""

    request: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def head(self, status: int, **headers: object) -> None:
        lines = [f"HTTP/1.1 {status} Scripted"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def until_gone(self) -> None:
        """Wait until the client closes the connection."""
        while await self.reader.read(1024):
            pass


@dataclass(slots=True)
class Origin:
    """A server with its received requests, and its `answers` by path."""

    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _open: "dict[asyncio.Task[None], asyncio.StreamWriter]" = field(default_factory=dict)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def asked(self, times: int) -> None:
        """Wait until this number of requests has arrived; a test that hangs here has failed."""
        async with asyncio.timeout(100), self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= times)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Register a connection; it is no coroutine, so that the connection is known from its first
        moment.
        """
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        self._writers.append(writer)
        task.add_done_callback(self._close)

    def _close(self, task: "asyncio.Task[None]") -> None:
        self._open.pop(task).close()
        self.gone.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # the client left
            while not writer.is_closing():
                await self._one(reader, writer)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        request = Received(first.split()[1], headers)
        self.requests.append(request)
        async with self._changed:
            self._changed.notify_all()
        answer = self.answers.get(request.target.partition("?")[0], status(404))
        await answer(Exchange(request, reader, writer))

    async def stop(self) -> None:
        """Close all connections, also those with answers that were not read to their end."""
        for task in self._open:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0)  # the loop lets go of what was aborted in its next turn


@asynccontextmanager
async def origin(tls: ssl.SSLContext | None = None) -> AsyncIterator[Origin]:
    """Run an origin on a free port."""
    started = Origin()
    server = await asyncio.start_server(started.accept, "127.0.0.1", 0, ssl=tls)
    started.port = server.sockets[0].getsockname()[1]
    try:
        yield started
    finally:
        # Python 3.11 leaks a connection that was accepted just before its server was closed, so
        # the server first stops to accept, and is closed when each connection has its protocol.
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening.fileno())
        for _ in range(5):
            await asyncio.sleep(0)
        server.close()
        await started.stop()
        await server.wait_closed()


def body(data: bytes, code: int = 200, **headers: object) -> Answer:
    """Return a whole answer."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(code, Content_Length=len(data), **headers)
        await exchange.send(data)

    return answer


def status(code: int, **headers: object) -> Answer:
    """Return an answer without a body."""
    return body(b"", code, **headers)


def redirect(location: str, code: int = 302) -> Answer:
    """Return an answer that redirects to `location`."""
    return status(code, Location=location)


def sequence(*answers: Answer) -> Answer:
    """Return the given answers one after the other; the last one is repeated."""
    turns = chain(answers, repeat(answers[-1]))

    async def answer(exchange: Exchange) -> None:
        await next(turns)(exchange)

    return answer


def silent() -> Answer:
    """Return no answer until the client closes the connection."""
    return Exchange.until_gone


def held(release: asyncio.Event, data: bytes = b"") -> Answer:
    """Return a good answer once the test releases it."""

    async def answer(exchange: Exchange) -> None:
        await release.wait()
        await body(data)(exchange)

    return answer


def after(seconds: float, then: Answer) -> Answer:
    """Return a slow answer; the delay is a property of the origin, not synchronisation."""

    async def answer(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await then(exchange)

    return answer


def drip(seconds: float) -> Answer:
    """Return one byte after each pause, for longer than a client waits."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, Content_Length=50_000)
        while True:
            await exchange.send(b".")
            await asyncio.sleep(seconds)

    return answer


def endless() -> Answer:
    """Return chunks without end and without a length."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, Transfer_Encoding="chunked")
        with suppress(ConnectionError):
            while not exchange.writer.is_closing():
                await exchange.send(b"1000\r\n", bytes(0x1000), b"\r\n")

    return answer


def announced(length: int, data: bytes) -> Answer:
    """Return a length that may be wrong; the connection is closed after `data`."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, Content_Length=length)
        await exchange.send(data)
        exchange.writer.close()

    return answer
