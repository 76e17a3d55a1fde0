import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpcore
import httpx
import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import PinnedTransport
from models.domain.deadline import NEVER
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import Exchange, Origin, body, origin, redirect

LIMITS = FetchLimits.from_settings(Settings(fetch_ports="1-65535"))
NAMES = {f"{name}.example": [["93.184.216.34"]] for name in ("one", "two", "three")}


def run(scenario: Callable[[Origin, httpx.AsyncHTTPTransport], Awaitable[None]], idle: int) -> None:
    async def main() -> None:
        async with origin() as there, asyncio.timeout(60):
            there.answers["/"] = body(b"image")
            there.answers["/last"] = body(b"image", Connection="close")
            transport = PinnedTransport((), idle, Names(NAMES), Wires())
            await scenario(there, transport)
            await transport.aclose()

    asyncio.run(main())


async def get(
    there: Origin, transport: httpx.AsyncHTTPTransport, name: str, path: str = ""
) -> None:
    url = there.url(path or "/", host=f"{name}.example")
    reply = await transport.handle_async_request(httpx.Request("GET", url))
    assert await reply.aread() == b"image"


def test_requests_that_are_cancelled_at_any_moment_cost_no_connection() -> None:
    async def scenario() -> None:
        async with origin() as there:
            there.answers["/"] = redirect("/image")
            there.answers["/image"] = body(b"image" * 30_000)
            limits = replace(LIMITS, concurrency=2)
            fetcher = Fetcher(limits, resolve=Names(NAMES), network=Wires())
            url = there.url(host="one.example")
            for steps in range(100):
                task = asyncio.create_task(fetcher.fetch(url, NEVER))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result().close()
            async with asyncio.timeout(15):
                found = await fetcher.fetch(url, NEVER)
            assert found.size == 150_000
            found.close()
            await fetcher.aclose()

    asyncio.run(scenario())


def test_a_connection_is_kept_for_its_origin() -> None:
    async def scenario(there: Origin, transport: httpx.AsyncHTTPTransport) -> None:
        for name in ("one", "two", "one", "two"):
            await get(there, transport, name)
        assert there.connections == 2

    run(scenario, 2)


def test_few_connections_are_kept_and_the_oldest_goes_first() -> None:
    async def scenario(there: Origin, transport: httpx.AsyncHTTPTransport) -> None:
        for name in ("one", "two", "three", "two", "three"):
            await get(there, transport, name)
        assert there.connections == 3
        await get(there, transport, "one")
        assert there.connections == 4

    run(scenario, 2)


@pytest.mark.parametrize("idle", [0, 1])
def test_a_connection_that_has_ended_is_not_kept(idle: int) -> None:
    async def scenario(there: Origin, transport: httpx.AsyncHTTPTransport) -> None:
        for _ in range(3):
            await get(there, transport, "one", "/last")
        assert there.connections == 3

    run(scenario, idle)


def test_a_connection_that_is_idle_for_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(there: Origin, transport: httpx.AsyncHTTPTransport) -> None:
        await get(there, transport, "one")
        monkeypatch.setattr(httpcore.AsyncHTTPConnection, "has_expired", lambda _: True)
        await get(there, transport, "two")
        monkeypatch.undo()
        await get(there, transport, "one")
        assert there.connections == 3

    run(scenario, 2)


def test_an_idle_connection_that_its_origin_resets_is_not_used() -> None:
    async def scenario(there: Origin, transport: httpx.AsyncHTTPTransport) -> None:
        ready, gone = asyncio.Event(), asyncio.Event()

        async def reset(exchange: Exchange) -> None:
            await body(b"image")(exchange)
            await ready.wait()
            exchange.writer.transport.abort()
            gone.set()

        there.answers["/reset"] = reset
        await get(there, transport, "one", "/reset")
        ready.set()
        await gone.wait()
        await get(there, transport, "one")
        assert there.connections == 2

    run(scenario, 2)


def test_a_handshake_that_is_cancelled_closes_its_connection() -> None:
    async def scenario() -> None:
        came, gone = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            came.set()
            while await reader.read(4096):
                pass
            gone.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        tls = ssl.create_default_context()
        transport = PinnedTransport((), 2, Names(NAMES), Wires(), tls)
        request = httpx.Request("GET", f"https://one.example:{port}/")
        task = asyncio.create_task(transport.handle_async_request(request))
        async with asyncio.timeout(60):
            await came.wait()
            task.cancel()
            await asyncio.wait([task])
            await gone.wait()
        del task
        server.close()

    asyncio.run(scenario())
