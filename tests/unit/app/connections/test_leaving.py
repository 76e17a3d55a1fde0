"""Clients that leave, that close their half of a connection, or that read nothing, are noticed."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.admission.counters import Counters
from app.connections.protocol import READING, ConnectionTable, GuardedProtocol
from app.http.request import DEPARTURE
from models.domain.errors import Cancelled
from tests.connection import LIMITS

SOON = 3.0
"""Seconds; a client that leaves is noticed after milliseconds on a quiet machine."""


def plain(size: int, version: str = "1.1", more: str = "") -> bytes:
    head = f"POST / HTTP/{version}\r\nHost: x\r\nContent-Length: {size}\r\n{more}\r\n"
    return head.encode() + bytes(size)


def chunked(size: int) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size))


REQUESTS: dict[str, Callable[[int], bytes]] = {
    "plain": plain,
    "chunked": chunked,
    "HTTP/1.0": lambda size: plain(size, "1.0"),
    "to be closed": lambda size: plain(size, more="Connection: close\r\n"),
    "expecting 100": lambda size: plain(size, more="Expect: 100-continue\r\n"),
}


class Device:
    """An application that reads a body, if it is to, and is busy until a test releases it.

    It computes nothing for a client that it knows to have left. `pieces` are those of its answers.
    """

    def __init__(self, *pieces: bytes, reads: bool = True, headers: Any = ()) -> None:
        self.go, self.done = asyncio.Event(), asyncio.Event()
        self.begun, self.left = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.pieces, self.reads, self.headers = pieces, reads, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while self.reads and (await receive()).get("more_body"):
            pass
        try:
            with scope[DEPARTURE]:
                await self._answer(send)
        except Cancelled:
            self.left.release()

    async def _answer(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.headers}
        *before, last = self.pieces
        if before:
            await send(start)
        for piece in before:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        self.begun.release()
        await self.go.wait()
        if not before:
            await send(start)
        await send({"type": "http.response.body", "body": last})
        self.done.set()


@asynccontextmanager
async def connected(
    device: Device, clock: Callable[[], float] | None = None, **limits: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the client's end of a connection over the loopback interface."""
    loop, state = asyncio.get_running_loop(), ServerState()
    table = ConnectionTable(replace(LIMITS, **limits), Counters(), list[str]().append, clock)
    config = uvicorn.Config(cast(Any, device), ws="none", log_config=None)
    config.load()
    server = await loop.create_server(
        lambda: GuardedProtocol(config, state, {}, table), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

    async def sweep() -> None:
        while True:
            await asyncio.sleep(0.05)
            table.sweep()

    sweeping = loop.create_task(sweep())
    try:
        async with asyncio.timeout(30):
            yield reader, writer
    finally:
        sweeping.cancel()
        writer.close()
        device.go.set()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        server.close()


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


CASES = [("plain", 1), ("plain", 1_500_000), *((kind, 220_000) for kind in REQUESTS)]


WORK = partial(Device, b"late")
AMID = [
    (partial(Device, b"first", b"late"), "plain", 1),
    (partial(WORK, reads=False), "plain", 200_000),
]
"""Amid a streamed answer, and before a body is read whose rest fits the kernel's buffer."""


@pytest.mark.parametrize(("made", "kind", "size"), [*((WORK, *each) for each in CASES), *AMID])
@pytest.mark.parametrize("end", ["close", "reset", "half"])
async def test_a_client_that_leaves_is_noticed(
    made: Callable[[], Device], kind: str, size: int, end: str
) -> None:
    device = made()
    async with connected(device) as (_, writer):
        writer.write(REQUESTS[kind](size))
        await device.begun.acquire()
        if end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
        if end == "half":
            writer.write_eof()
        else:
            writer.close()
        await asyncio.wait_for(device.left.acquire(), SOON)


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
async def test_a_client_that_does_not_read_is_cut_off_to_make_room(more: str) -> None:
    """The answer is longer than the buffers of the kernel, so a plain close would never end."""

    time, device = [0.0], Device(bytes(32 << 20))
    device.go.set()
    async with connected(device, lambda: time[0], connections=1) as (reader, writer):
        writer.write(plain(1, more=more))
        await device.done.wait()
        for seconds, status in ((READING / 2, b"503"), (READING, b"200")):
            time[0] += seconds
            second = await asyncio.open_connection(*writer.get_extra_info("peername"))
            second[1].write(plain(1))
            assert (await second[0].readexactly(12))[9:] == status
            second[1].close()
        assert len(await reader.read()) < len(device.pieces[0])
