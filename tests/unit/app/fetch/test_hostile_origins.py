"""Origins and names that want to cost more than an image: each ends soon, and is tried once."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import httpx
import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from app.fetch.pinned_network import PinnedTransport, asking
from app.urls import Address
from models.domain.deadline import NEVER
from models.domain.errors import AddressRefused, OriginFailed, ServiceError, TooLarge
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import Answer, Exchange, Origin, body, origin, redirect

LIMITS = FetchLimits.from_settings(
    Settings.model_validate({"fetch_ports": "1-65535", "max_image_bytes": 1_000_000})
)
PUBLIC = "93.184.216.34"


def fetched(
    answer: Answer, names: Callable[[str, int], Awaitable[Sequence[Address]]] | None = None
) -> tuple[bytes | ServiceError, int]:
    """Return what one URL gave, and how often its origin was asked."""

    async def scenario() -> tuple[bytes | ServiceError, int]:
        async with origin() as there, asyncio.timeout(100):
            there.answers["/"] = answer
            known = names or Names({"image.example": [[PUBLIC]]})
            fetcher = Fetcher(LIMITS, resolve=known, network=Wires())
            try:
                found: bytes | ServiceError = await one(fetcher, there)
            finally:
                await fetcher.aclose()
            return found, len(there.requests)

    return asyncio.run(scenario())


async def one(fetcher: Fetcher, there: Origin, path: str = "/") -> bytes | ServiceError:
    try:
        return (await fetcher.fetch(there.url(path, "image.example"), NEVER)).read()
    except ServiceError as error:
        return error


def raw(*parts: bytes) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(*parts)

    return answer


def fails(answer: Answer, match: str) -> None:
    found, asked = fetched(answer)
    assert isinstance(found, OriginFailed)
    assert match in found.detail
    assert asked == 1


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("line", [b"a: b\r\n", b"x"])
def test_headers_without_end_are_an_error(line: bytes) -> None:
    found, asked = fetched(raw(b"HTTP/1.1 200 OK\r\n", *[line * (100_000 // len(line))] * 5))
    assert isinstance(found, OriginFailed)
    assert asked <= 3


def test_long_redirects_and_chunks_of_one_byte_are_an_error_after_some_thousands() -> None:
    fails(redirect("/" + "é" * 10_000), "redirects to a URL of more than 8192 characters")
    fails(raw(CHUNKED, *[b"1\r\nx\r\n" * 1000] * 100), "pieces of a few bytes")
    few = raw(CHUNKED, b"1\r\nx\r\n" * 2000, b"0\r\n\r\n")
    assert fetched(few) == (b"x" * 2000, 1)


@pytest.mark.parametrize("target", ["http://image.example:22/", "http://other.example/"])
async def test_ports_and_hosts_are_checked_at_each_redirect(target: str) -> None:
    async with origin() as there:
        there.answers["/"] = redirect(target)
        ports = Settings.model_validate(
            {"fetch_ports": f"80,{there.port}", "fetch_allowed_hosts": "image.example"}
        )
        wires = Wires()
        names = Names({"image.example": [[PUBLIC]], "other.example": [[PUBLIC]]})
        fetcher = Fetcher(FetchLimits.from_settings(ports), resolve=names, network=wires)
        assert isinstance(await one(fetcher, there), AddressRefused)
        assert wires.connected == [PUBLIC]
        await fetcher.aclose()


@pytest.mark.parametrize(
    "answers",
    [
        [[PUBLIC], ["127.0.0.1"]],
        [[PUBLIC], ["10.0.0.1", PUBLIC]],
        [[PUBLIC], [PUBLIC, "::1"]],
        [[PUBLIC], [*[PUBLIC] * 100, "169.254.169.254"]],
        [[PUBLIC], ["::ffff:127.0.0.1"]],
    ],
)
async def test_a_name_that_turns_inward_between_two_hops_is_refused(
    answers: list[list[str]],
) -> None:
    async with origin() as there:
        there.answers["/"] = redirect("/next")
        there.answers["/next"] = body(b"secret", Connection="close")
        wires, names = Wires(), Names({"image.example": answers})
        fetcher = Fetcher(LIMITS, resolve=names, network=wires)
        first = await one(fetcher, there, "/next")
        assert first == b"secret"
        assert isinstance(await one(fetcher, there), AddressRefused)
        assert wires.connected == [PUBLIC]
        assert names.asked == ["image.example"] * 2
        await fetcher.aclose()


def test_a_name_with_hundreds_of_addresses_is_refused() -> None:
    many = Names({"image.example": [[PUBLIC] * 129]})
    found, asked = fetched(body(b"x"), many)
    assert isinstance(found, AddressRefused)
    assert asked == 0


NAMES = {f"{name}.example": [[PUBLIC]] for name in ("one", "two", "three")}


async def test_requests_that_are_cancelled_at_any_moment_cost_no_connection() -> None:
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
        async with asyncio.timeout(100):
            found = await fetcher.fetch(url, NEVER)
        assert found.size == 150_000
        found.close()
        await fetcher.aclose()


async def test_a_handshake_that_is_cancelled_closes_its_connection() -> None:
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
    async with asyncio.timeout(100):
        await came.wait()
        task.cancel()
        await asyncio.wait([task])
        await gone.wait()
    del task
    server.close()


DEAF = "93.184.216.35"


async def test_a_client_with_many_slow_hosts_leaves_fetches_to_others() -> None:
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
        async with asyncio.timeout(100):
            found = await fetcher.fetch(there.url(host="good.example"), NEVER, "b")
        assert found.read() == b"image"
        assert asked_by == [*"aaaaaab"]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await fetcher.aclose()


def coded(coding: str, body: bytes) -> bytes:
    """Return a whole answer whose header names the coding."""
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


NO_CODINGS = ("", "identity", "UTF-8", "binary", "none", "8bit", "image/jpeg", "utf-8, identity")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        *((name, b"image") for name in NO_CODINGS),
        ("gzip", gzip.compress(b"image", mtime=0)),
        ("X-GZIP, utf-8", gzip.compress(b"im", mtime=0) + gzip.compress(b"age", mtime=0)),
        ("deflate", zlib.compress(b"image")),
        ("deflate", zlib.compress(b"image", wbits=-15)),
    ],
)
def test_what_can_be_unpacked_is_and_a_name_of_no_compression_is_ignored(
    name: str, body: bytes
) -> None:
    assert fetched(raw(coded(name, body))) == (b"image", 1)


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "gzip, br", "gzip, gzip"])
def test_any_other_compression_is_named(name: str) -> None:
    fails(raw(coded(name, b"image")), f"sent a body compressed by {name} although")


@pytest.mark.parametrize("name", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b"image", b"", gzip.compress(b"image", mtime=0)[:-1]])
def test_a_body_that_is_not_what_its_coding_says_is_an_error(name: str, body: bytes) -> None:
    fails(raw(coded(name, body)), name)


def test_an_unpacked_body_has_the_limit_of_an_image() -> None:
    found, _ = fetched(raw(coded("gzip", gzip.compress(bytes(LIMITS.max_bytes)))))
    assert found == bytes(LIMITS.max_bytes)
    found, _ = fetched(raw(coded("gzip", gzip.compress(bytes(LIMITS.max_bytes + 1)))))
    assert isinstance(found, TooLarge)
