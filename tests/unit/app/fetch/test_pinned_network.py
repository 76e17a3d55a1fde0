import asyncio
import ssl
import subprocess
from pathlib import Path

import httpcore
import httpx
import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import PinnedBackend, PinnedTransport
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
    ("wires", "timeout"),
    [(Wires(dead=[FIRST]), None), (Wires(dead=[FIRST]), 5), (Wires(deaf=[FIRST]), 0.2)],
    ids=["dead", "dead-in-time", "deaf"],
)
def test_a_first_address_that_fails_leads_to_the_second(
    wires: Wires, timeout: float | None
) -> None:
    names = Names({"good.example": [[FIRST, SECOND]]})
    asyncio.run(connect_to_origin(wires, names, timeout))
    assert wires.connected == [FIRST, SECOND]


def test_all_addresses_together_get_the_connect_timeout() -> None:
    async def scenario() -> float:
        clock = asyncio.get_running_loop().time
        start = clock()
        backend = PinnedBackend((), names, wires)
        with pytest.raises(httpcore.ConnectTimeout):
            await backend.connect_tcp("good.example", 80, 0.1)
        return clock() - start

    addresses = [f"93.184.216.{n}" for n in range(100)]
    wires = Wires(deaf=addresses)
    names = Names({"good.example": [addresses]})
    assert 0.09 < asyncio.run(scenario()) < 1


async def test_a_silent_name_server_counts_as_a_connect_timeout() -> None:
    async def never(_host: str, _port: int) -> list[Address]:
        await asyncio.Event().wait()
        return []

    backend = PinnedBackend((), never, Wires())
    with pytest.raises(httpcore.ConnectTimeout, match="resolved"):
        await backend.connect_tcp("good.example", 80, 0.05)


@pytest.mark.parametrize("answers", [{}, {"good.example": [[]]}], ids=["unknown", "no address"])
def test_a_name_without_addresses_cannot_be_connected_to(
    answers: dict[str, list[list[str]]],
) -> None:
    with pytest.raises(httpcore.ConnectError):
        asyncio.run(connect_to_origin(Wires(), Names(answers), None))


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
