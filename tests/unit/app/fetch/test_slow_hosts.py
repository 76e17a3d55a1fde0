"""Slow hosts and names without an answer cost the client that sends them, and no other one."""

import asyncio
import socket
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from models.domain.deadline import NEVER
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import body, origin

LIMITS = replace(
    FetchLimits.from_settings(Settings(fetch_ports="1-65535")), connect_timeout=20, read_timeout=20
)
DEAF, PUBLIC = "93.184.216.35", "93.184.216.34"


def test_a_client_with_stuck_names_leaves_lookups_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, full, released = list[str](), Event(), Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if len(asked) == 96:
            full.set()
        if host.startswith("stuck"):
            assert released.wait(60)
        return [(0, 0, 0, "", ("93.184.216.34", 0))]

    async def scenario() -> None:
        async with origin() as there:
            there.answers["/"] = body(b"image")
            fetcher = Fetcher(LIMITS, network=Wires())

            async def stuck(first: int, last: int) -> None:
                """Fetch from stuck names, and leave when all lookups that can run do."""
                urls = [there.url(host=f"stuck{n}.example") for n in range(first, last)]
                tasks = [asyncio.create_task(fetcher.fetch(url, NEVER, "a")) for url in urls]
                assert await asyncio.to_thread(full.wait, 60)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

            await stuck(0, 100)
            await stuck(100, 200)
            async with asyncio.timeout(15):
                found = await fetcher.fetch(there.url(host="good.example"), NEVER, "b")
            assert found.read() == b"image"
            assert len(asked) == 97
            await fetcher.aclose()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        asyncio.run(scenario())
    finally:
        released.set()


def test_a_client_with_many_slow_hosts_leaves_fetches_to_others() -> None:
    async def scenario() -> None:
        async with origin() as there:
            there.answers["/"] = body(b"image")
            slow = [f"slow{n}.example" for n in range(100)]
            names = Names({"good.example": [[PUBLIC]], **{name: [[DEAF]] for name in slow}})
            wires = Wires(deaf=[DEAF])
            limits = replace(LIMITS, concurrency=8, connect_timeout=100, total_timeout=100)
            fetcher = Fetcher(limits, resolve=names, network=wires)
            urls = [there.url(host=name) for name in slow]
            tasks = [asyncio.create_task(fetcher.fetch(url, NEVER, "a")) for url in urls]
            for _ in range(100):
                await asyncio.sleep(0)
            assert wires.connected == [DEAF] * 6
            async with asyncio.timeout(30):
                found = await fetcher.fetch(there.url(host="good.example"), NEVER, "b")
            assert found.read() == b"image"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await fetcher.aclose()

    asyncio.run(scenario())
