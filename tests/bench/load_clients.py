"""CPU time that a request costs a client, against a server that reads it and answers at once.

It shows what the client of `darkroom bench` can ask for before it is the limit itself, and what
httpx, and aiohttp where it is installed, would cost in its place.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import time
from collections.abc import Awaitable, Callable, Coroutine
from multiprocessing.connection import Connection as Pipe
from typing import Any, cast

import httpx
import uvloop

from app.cli.load.client import Client, Origin

ANSWER = json.dumps({"results": [{"index": 0, "status": "ok"}] * 2, "summary": {"failed": 0}})
WHOLE = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(ANSWER)}\r\n\r\n{ANSWER}"
).encode()
CONNECTIONS = 64

Ask = Callable[[], Awaitable[object]]


class Answering(asyncio.Protocol):
    """Answer each request as soon as its last byte is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._head, self._missing = b"", 0

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            self._head += data
            head, found, body = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            self._head, self._missing, data = b"", length, body
        self._missing -= len(data)
        if not self._missing:
            self._transport.write(WHOLE)


def serve(pipe: Pipe) -> None:
    """Serve until the process is ended."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def spent(ask: Ask, requests: int) -> float:
    """Return the CPU seconds of this process for one request."""
    left = requests

    async def loop() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await ask()

    await asyncio.gather(*(ask() for _ in range(CONNECTIONS)))
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.gather(*(loop() for _ in range(CONNECTIONS)))
    after = resource.getrusage(resource.RUSAGE_SELF)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / requests


async def of_darkroom(port: int, body: bytes, requests: int) -> float:
    """Measure the client of `darkroom bench`."""
    origin = Origin.of(f"http://127.0.0.1:{port}")
    client, message = Client(origin), origin.request("/", {"Content-Type": "image/jpeg"}, body)
    found = await spent(lambda: client.ask(message), requests)
    client.close()
    return found


async def of_httpx(port: int, body: bytes, requests: int) -> float:
    """Measure httpx."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:
        return await spent(lambda: client.post(f"http://127.0.0.1:{port}/", content=body), requests)


async def of_aiohttp(port: int, body: bytes, requests: int) -> float | None:
    """Measure aiohttp; None where it is not installed."""
    try:
        import aiohttp
    except ImportError:
        return None
    async with aiohttp.ClientSession() as session:

        async def ask() -> object:
            async with session.post(f"http://127.0.0.1:{port}/", data=body) as reply:
                return await reply.read()

        return await spent(ask, requests)


Measure = Callable[[int, bytes, int], Coroutine[Any, Any, float | None]]

CLIENTS: dict[str, Measure] = {"darkroom": of_darkroom, "httpx": of_httpx, "aiohttp": of_aiohttp}


def main() -> None:
    """Measure all clients one after the other, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=90_000)
    given = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port, body, began = ours.recv(), bytes(given.bytes), time.time()
    found: dict[str, float | None] = {}
    for name, measure in CLIENTS.items():
        seconds = uvloop.run(measure(port, body, given.requests))
        found[name] = None if seconds is None else round(seconds * 1e6, 1)
    server.kill()
    server.join()
    print(
        json.dumps(
            {
                "cpu_microseconds_per_request": found,
                "bytes": given.bytes,
                "requests": given.requests,
                "connections": CONNECTIONS,
                "seconds": round(time.time() - began, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
