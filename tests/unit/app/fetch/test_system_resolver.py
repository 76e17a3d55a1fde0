import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from threading import Event, Thread
from typing import Any

import pytest

from app.fetch import pinned_network
from app.fetch.pinned_network import MOST_ADDRESSES, SystemResolver, asking
from app.urls import Address


class NameServer:
    """A name server that answers for names that begin with `stuck` only once it is `released`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.released = Event()
        monkeypatch.setattr(pinned_network, "_look_up", self._look_up)

    def _look_up(self, host: str) -> list[str]:
        self.asked.append(host)
        if host.startswith("stuck"):
            assert self.released.wait(60)
        return ["93.184.216.34"]


def ask(resolver: SystemResolver, client: str, host: str) -> asyncio.Task[Sequence[Address]]:
    async def one() -> Sequence[Address]:
        asking.set(client)
        return await resolver(host, 80)

    return asyncio.create_task(one())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    """Return a name server, which answers at the end of the test at the latest."""
    found = NameServer(monkeypatch)
    yield found
    found.released.set()


async def test_addresses_have_no_zones_and_errors_are_os_errors() -> None:
    resolver = SystemResolver()
    assert [str(found) for found in await resolver("127.0.0.1", 80)] == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"\d"):
        await resolver("no-such-name.invalid", 80)
    with pytest.raises(OSError, match="label"):
        await resolver("a" * 64, 80)


async def test_no_more_addresses_are_read_than_show_that_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [(10, 1, 6, "", (f"2606:4700::{number:x}", 0)) for number in range(10_000)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [*given, *given])

    assert len(await SystemResolver()("many.example", 80)) == MOST_ADDRESSES + 1


async def test_other_clients_find_threads_while_one_has_names_that_are_never_answered(
    server: NameServer,
) -> None:
    resolver = SystemResolver(4)
    tasks = [ask(resolver, "a", f"stuck{n}.example") for n in range(100)]
    await settle()
    assert [str(each) for each in await ask(resolver, "b", "good.example")] == ["93.184.216.34"]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    # The requests have gone, their lookups have not: they count all the same.
    tasks = [ask(resolver, "a", f"stuck{n}.example") for n in range(100, 200)]
    await settle()
    assert await ask(resolver, "c", "fine.example")
    assert sum(host.startswith("stuck") for host in server.asked) == 3
    server.released.set()
    await asyncio.gather(*tasks)


async def test_a_name_without_a_waiting_caller_is_not_looked_up(server: NameServer) -> None:
    resolver = SystemResolver(2)
    first = ask(resolver, "a", "stuck.example")
    left, last = ask(resolver, "a", "left.example"), ask(resolver, "a", "last.example")
    await settle()
    left.cancel()
    server.released.set()
    await asyncio.gather(first, last)
    assert server.asked == ["stuck.example", "last.example"]


async def test_a_thread_that_cannot_be_started_is_an_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    resolver = SystemResolver(1)
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fails)
        with pytest.raises(OSError, match="no thread"):
            await resolver("good.example", 80)
    assert await resolver("127.0.0.1", 80)


ENDING = """
import asyncio, time
from app.fetch import pinned_network

pinned_network._look_up = lambda _: time.sleep(3600)

async def main():
    lookup = asyncio.create_task(pinned_network.SystemResolver()("stuck.example", 80))
    await asyncio.sleep(0)
    lookup.cancel()

asyncio.run(main())
"""


def test_a_process_that_ends_does_not_wait_for_name_servers() -> None:
    subprocess.run([sys.executable, "-c", ENDING], check=True, timeout=60)
