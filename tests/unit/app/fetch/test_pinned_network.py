"""Names are resolved, their addresses checked and connected to in one place."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import httpcore
import httpx
import pytest

from app.fetch import pinned_network
from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import PinnedBackend, PinnedTransport, SystemResolver, asking
from app.urls import Address
from models.domain.deadline import NEVER
from models.domain.errors import OriginFailed
from models.settings import Settings
from tests.certificates import self_signed
from tests.network import Names, Wires
from tests.origin import body, origin

FIRST, SECOND = "93.184.216.34", "93.184.216.35"


async def connect_to_origin(wires: Wires, names: Names, seconds: float | None) -> None:
    async with origin() as there:
        backend = PinnedBackend((), names, wires)
        stream = await backend.connect_tcp("good.example", there.port, seconds)
        await stream.aclose()


@pytest.mark.parametrize(
    ("wires", "seconds"),
    [(Wires(dead=[FIRST]), None), (Wires(dead=[FIRST]), 5), (Wires(deaf=[FIRST]), 0.2)],
    ids=["dead", "dead-in-time", "deaf"],
)
async def test_a_first_address_that_fails_leads_to_the_second(
    wires: Wires, seconds: float | None
) -> None:
    names = Names({"good.example": [[FIRST, SECOND]]})
    await connect_to_origin(wires, names, seconds)
    assert wires.connected == [FIRST, SECOND]


async def test_all_addresses_together_get_the_connect_timeout() -> None:
    addresses = [f"93.184.216.{n}" for n in range(100)]
    backend = PinnedBackend((), Names({"good.example": [addresses]}), Wires(deaf=addresses))
    clock = asyncio.get_running_loop().time
    start = clock()
    with pytest.raises(httpcore.ConnectTimeout):
        await backend.connect_tcp("good.example", 80, 0.1)
    assert 0.09 < clock() - start < 1


async def test_a_silent_name_server_counts_as_a_connect_timeout() -> None:
    async def never(_host: str, _port: int) -> list[Address]:
        await asyncio.Event().wait()
        return []

    backend = PinnedBackend((), never, Wires())
    with pytest.raises(httpcore.ConnectTimeout, match="resolved"):
        await backend.connect_tcp("good.example", 80, 0.05)


@pytest.mark.parametrize("answers", [{}, {"good.example": [[]]}], ids=["unknown", "no address"])
async def test_a_name_without_addresses_cannot_be_connected_to(
    answers: dict[str, list[list[str]]],
) -> None:
    with pytest.raises(httpcore.ConnectError):
        await connect_to_origin(Wires(), Names(answers), None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate of good.example with its key, in one file."""
    try:
        return self_signed(tmp_path_factory.mktemp("tls"), "DNS:good.example")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no certificate to test with: {error}")


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_tls_asks_for_and_verifies_the_name_although_the_address_is_pinned(
    certificate: Path,
) -> None:
    asked_for: list[str | None] = []
    tls = server_side(certificate)
    tls.sni_callback = lambda _, name, __: asked_for.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))
    names = Names({"good.example": [[FIRST]], "other.example": [[FIRST]]})
    async with origin(tls) as there:
        there.answers["/"] = body(b"image")
        transport = PinnedTransport((), 4, names, Wires(), trusting)
        request = httpx.Request("GET", there.url(host="good.example", scheme="https"))
        reply = await transport.handle_async_request(request)
        assert await reply.aread() == b"image"
        request = httpx.Request("GET", there.url(host="other.example", scheme="https"))
        with pytest.raises(httpx.ConnectError, match=r"other\.example"):
            await transport.handle_async_request(request)
        assert asked_for == ["good.example", "other.example"]
        assert there.requests[0].headers["host"] == f"good.example:{there.port}"
        assert len(there.requests) == 1
        await transport.aclose()


async def test_an_origin_without_a_trusted_certificate_is_not_asked_again(
    certificate: Path,
) -> None:
    async with origin(server_side(certificate)) as there:
        names, wires = Names({"good.example": [[FIRST]]}), Wires()
        limits = FetchLimits.from_settings(Settings(fetch_ports="1-65535"))
        fetcher = Fetcher(limits, resolve=names, network=wires)
        with pytest.raises(OriginFailed, match="certificate"):
            await fetcher.fetch(there.url(host="good.example", scheme="https"), NEVER)
        assert wires.connected == [FIRST]
        assert there.requests == []
        await fetcher.aclose()


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
