import asyncio
import ssl
from dataclasses import replace

import httpx

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import PinnedTransport
from models.domain.deadline import NEVER
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import body, origin, redirect

LIMITS = FetchLimits.from_settings(Settings(fetch_ports="1-65535"))
NAMES = {f"{name}.example": [["93.184.216.34"]] for name in ("one", "two", "three")}


def test_requests_that_are_cancelled_at_any_moment_cost_no_connection() -> None:
    async def scenario() -> None:
        async with origin() as there:
            there.answers["/"] = redirect("/image")
            there.answers["/image"] = body(b"image" * 30_000)
            limits = replace(LIMITS, concurrency=2)
            fetcher = Fetcher(limits, resolve=Names(NAMES), network=Wires())
            url = there.url(host="one.example")
            for steps in range(0, 100, 3):
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
