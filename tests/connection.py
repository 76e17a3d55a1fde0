"""A connection without a network for tests: a fake transport and a clock that the test advances."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from app.admission.counters import Counters
from app.connections.protocol import ConnectionLimits, ConnectionTable, GuardedProtocol
from models.settings import Settings

LIMITS = ConnectionLimits.of(Settings(), 1 << 16)


@dataclass
class FakeTransport(asyncio.Transport):
    """A transport that takes everything at once, or holds `unsent` bytes if a test sets them."""

    written: bytearray = field(default_factory=bytearray)
    closed: bool = False
    aborted: bool = False
    half_closed: bool = False
    reading: bool = True
    unsent: int = 0

    def write(self, data: Any) -> None:
        assert not self.half_closed, "a write after the end"
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.7", 5), "sockname": ("192.0.2.1", 80)}.get(name, default)


@dataclass
class Line:
    """A connection to an application, with the bytes that were written to it."""

    protocol: GuardedProtocol
    transport: FakeTransport
    table: ConnectionTable
    time: list[float]
    ended: list[str]

    async def send(self, *pieces: bytes) -> bytes:
        """Feed the pieces, let the application run, and return what was written meanwhile."""
        before = len(self.transport.written)
        for piece in pieces:
            self.protocol.data_received(piece)
            for _ in range(20):
                await asyncio.sleep(0)
        return bytes(self.transport.written[before:])

    async def wait(self, seconds: float) -> bytes:
        """Advance the clock, check which connections are late, and return the bytes written
        meanwhile.
        """
        self.time[0] += seconds
        before = len(self.transport.written)
        self.table.sweep()
        for _ in range(20):
            await asyncio.sleep(0)
        return bytes(self.transport.written[before:])


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer without reading the body."""
    headers = [(b"content-length", b"5")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})


def connected(app: ASGIApp = hello, beside: Line | None = None, **limits: Any) -> Line:
    """Return a new connection to `app`, perhaps at the server of another one; it needs a running
    event loop.
    """
    time, ended = [1000.0], list[str]()
    table = ConnectionTable(
        replace(LIMITS, **limits), Counters(), ended.append, clock=lambda: time[0]
    )
    if beside is not None:
        time, ended, table = beside.time, beside.ended, beside.table
    config = uvicorn.Config(cast(Callable[..., Any], app), ws="none", log_config=None)
    config.load()
    protocol = GuardedProtocol(config, ServerState(), {}, table)
    transport = FakeTransport()
    protocol.connection_made(transport)
    return Line(protocol, transport, table, time, ended)
