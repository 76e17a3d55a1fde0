"""Slow hosts cost the client that sends them, and no other client."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import asking
from app.urls import Address
from models.domain.deadline import NEVER
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import body, origin

LIMITS = replace(
    FetchLimits.from_settings(Settings(fetch_ports="1-65535")), connect_timeout=20, read_timeout=20
)
DEAF, PUBLIC = "93.184.216.35", "93.184.216.34"


def test_a_client_with_many_slow_hosts_leaves_fetches_to_others() -> None:
    async def scenario() -> None:
        async with origin() as there:
            there.answers["/"] = body(b"image")
            slow = [f"slow{n}.example" for n in range(100)]
            names = Names({"good.example": [[PUBLIC]], **{name: [[DEAF]] for name in slow}})
            wires, asked_by = Wires(deaf=[DEAF]), list[str]()

            async def resolve(host: str, port: int) -> Sequence[Address]:
                asked_by.append(asking.get())
                return await names(host, port)

            limits = replace(LIMITS, concurrency=8, connect_timeout=100, total_timeout=100)
            fetcher = Fetcher(limits, resolve=resolve, network=wires)
            urls = [there.url(host=name) for name in slow]
            tasks = [asyncio.create_task(fetcher.fetch(url, NEVER, "a")) for url in urls]
            for _ in range(100):
                await asyncio.sleep(0)
            assert wires.connected == [DEAF] * 6
            async with asyncio.timeout(30):
                found = await fetcher.fetch(there.url(host="good.example"), NEVER, "b")
            assert found.read() == b"image"
            assert asked_by == [*"aaaaaab"]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await fetcher.aclose()

    asyncio.run(scenario())
