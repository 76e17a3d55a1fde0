"""URLs and stored images: whole bodies, redirects, tries, limits of time, size and concurrency."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.admission import clients
from app.fetch import fetcher
from app.fetch.fetcher import Fetcher, FetchLimits
from app.intake import spool
from app.intake.spool import THRESHOLD
from app.storage.location import Location, parse
from app.storage.storage import Storage
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import (
    AddressRefused,
    DeadlineExceeded,
    InvalidParameter,
    NotFound,
    OriginFailed,
    OriginTimedOut,
    ServiceError,
    TooLarge,
)
from models.settings import Settings
from models.version import VERSION
from tests.network import Names, Wires
from tests.origin import (
    Answer,
    Origin,
    after,
    announced,
    body,
    drip,
    endless,
    held,
    origin,
    redirect,
    sequence,
    silent,
    status,
)

LOCAL = FetchLimits.from_settings(
    Settings.model_validate(
        {
            "fetch_allowed_networks": "127.0.0.0/8",
            "fetch_ports": "1-65535",
            "max_image_bytes": 100_000,
            "fetch_total_timeout": 10,
        }
    )
)


@dataclass(slots=True)
class World:
    """An origin, a fetcher that may ask it, and what the fetcher did besides."""

    origin: Origin
    fetcher: Fetcher = field(init=False)
    wires: Wires = field(init=False)
    slept: list[float] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    def limit(self, wires: Wires | None = None, **limits: Any) -> None:
        """Make the fetcher anew, with other limits."""
        names = {name: [["127.0.0.1"]] for name in ("one.example", "one.example.", "two.example")}
        self.wires = wires or Wires()
        self.fetcher = Fetcher(
            replace(LOCAL, **limits),
            lambda outcome, _seconds: self.outcomes.append(outcome),
            Names(names),
            self.wires,
        )

    async def get(self, path: str = "/", deadline: Deadline = NEVER) -> bytes:
        blob = await self.fetcher.fetch(self.origin.url(path), deadline)
        try:
            return blob.read()
        finally:
            blob.close()


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Return an origin and a fetcher with the limits `LOCAL`, which does not wait before tries."""
    async with origin() as there, asyncio.timeout(100):
        found = World(there)

        async def sleep(seconds: float) -> None:
            found.slept.append(seconds)

        monkeypatch.setattr(fetcher, "sleep", sleep)
        monkeypatch.setattr(fetcher, "random", lambda: 1.0)
        found.limit()
        yield found
        await found.fetcher.aclose()


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, 100_000])
async def test_a_body_arrives_whole_in_memory_or_on_disk(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(spool, "THRESHOLD", 1000)

    data = bytes(range(256)) * (size // 256 + 1)
    world.origin.answers["/"] = body(data[:size])
    blob = await world.fetcher.fetch(world.origin.url(), NEVER)
    assert blob.read() == data[:size]
    assert blob.on_disk == (size > 1000)
    assert world.outcomes == ["ok"]
    blob.close()


async def test_an_origin_sees_who_asks_and_for_what_and_nothing_else(world: World) -> None:
    world.origin.answers["/cat"] = body(b"image")
    await world.get("/cat?size=2#secret")
    [request] = world.origin.requests
    assert request.target == "/cat?size=2"
    assert request.headers == {
        "host": f"127.0.0.1:{world.origin.port}",
        "user-agent": f"darkroom/{VERSION}",
        "accept": "image/*",
        "accept-encoding": "identity",
    }


async def test_proxies_and_credentials_of_the_environment_are_not_used(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")

    world.origin.answers["/"] = body(b"image")
    assert await world.get() == b"image"
    assert "authorization" not in world.origin.requests[0].headers
    assert world.wires.connected == ["127.0.0.1"]


async def test_urls_are_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.origin.answers["/"] = sequence(status(503), body(b"image"))
    with caplog.at_level(logging.DEBUG):
        await world.get("/?token=secret")
    assert "secret" not in caplog.text


async def test_a_connection_is_used_again_until_the_fetcher_closes(world: World) -> None:
    world.origin.answers["/"] = body(b"image")
    for _ in range(3):
        await world.get()
    assert (world.origin.connections, len(world.origin.requests)) == (1, 3)
    assert not world.origin.gone.is_set()
    await world.fetcher.aclose()
    await world.origin.gone.wait()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/cat", "cat", "//127.0.0.1:{port}/cat", "/a/../cat#top"])
async def test_redirects_are_followed(world: World, code: int, location: str) -> None:
    world.origin.answers["/"] = redirect(location.format(port=world.origin.port), code)
    world.origin.answers["/cat"] = body(b"image")
    assert await world.get() == b"image"


async def test_redirects_are_followed_up_to_the_limit_and_no_further(world: World) -> None:
    world.limit(max_redirects=3)
    for n in range(4):
        world.origin.answers[f"/{n}"] = redirect(f"/{n + 1}")
    world.origin.answers["/4"] = body(b"image")
    assert await world.get("/1") == b"image"
    with pytest.raises(OriginFailed, match="more than 3 redirects"):
        await world.get("/0")
    assert [request.target for request in world.origin.requests[4:]] == ["/0", "/1", "/2", "/3"]


DATE = "Wed, 21 Oct 2015 07:28:07 GMT"
IMAGE = body(b"image")


@pytest.mark.parametrize(
    ("answers", "slept"),
    [
        *[([status(code), status(code), IMAGE], [0.2, 0.4]) for code in (429, 502, 503, 504)],
        ([status(503, Retry_After="7"), IMAGE], [7.0]),
        *[
            ([status(503, Retry_After=text), IMAGE], [0.2])
            for text in ("soon", "-1", "", "1.5", DATE, "0")
        ],
        ([announced(5, b"ima"), IMAGE], [0.2]),
        ([announced(5, b"image and more")], []),
    ],
)
async def test_a_failure_that_may_pass_is_tried_again_after_a_pause(
    world: World, answers: list[Answer], slept: list[float]
) -> None:
    world.limit(retries=2)
    world.origin.answers["/"] = sequence(*answers)
    assert await world.get() == b"image"
    assert world.slept == slept
    assert world.outcomes == ["ok"]


@pytest.mark.parametrize(
    ("answer", "match", "slept"),
    [
        *[
            (status(code), f"127.0.0.1 answered {code}", [])
            for code in (204, 206, 302, 304, 400, 401, 403, 404, 410, 418, 500, 501)
        ],
        (status(503), "answered 503", [0.2, 0.4]),
        (status(503, Retry_After=11), "answered 503", []),
        (status(503, Retry_After=10**400), "answered 503", []),
        (status(503, Retry_After=6), "answered 503", [6.0]),
        (announced(10, b"short"), "broke", [0.2, 0.4]),
        (announced(100_001, b""), "the image has 100001 bytes", []),
        (endless(), "more than 100000 bytes", []),
    ],
)
async def test_a_failure_is_named_and_tried_again_while_time_is_left(
    world: World, answer: Answer, match: str, slept: list[float]
) -> None:
    world.limit(retries=2, total_timeout=10)
    world.origin.answers["/"] = answer
    with pytest.raises((OriginFailed, TooLarge), match=match) as failed:
        await world.get()
    assert len(world.origin.requests) == 1 + len(slept)
    assert world.slept == slept
    too_large = isinstance(failed.value, TooLarge)
    assert world.outcomes == ["too_large" if too_large else "origin_failed"]


@pytest.mark.parametrize(
    ("answer", "match", "limits"),
    [
        (silent(), "did not send in time", {"read_timeout": 0.05}),
        (drip(100), "did not send in time", {"read_timeout": 0.05}),
        (drip(0.01), r"more than 0\.1 seconds", {"total_timeout": 0.1}),
        (after(0.03, redirect("/")), r"more than 0\.1 seconds", {"total_timeout": 0.1}),
    ],
    ids=["silent", "stalled", "drip", "hops"],
)
async def test_an_origin_that_takes_too_long_is_not_asked_again(
    world: World, answer: Answer, match: str, limits: dict[str, Any]
) -> None:
    world.limit(max_redirects=20, **limits)
    world.origin.answers["/"] = answer
    with pytest.raises(OriginTimedOut, match=match):
        await world.get()
    assert world.slept == []
    assert world.outcomes == ["timed_out"]


async def test_a_pause_beyond_the_deadline_is_not_begun(world: World) -> None:
    world.origin.answers["/"] = status(503, Retry_After=8)
    now = asyncio.get_running_loop().time()
    with pytest.raises(OriginFailed, match="answered 503"):
        await world.get(deadline=Deadline(now + 5))
    assert world.slept == []


async def test_a_failed_connection_is_tried_again_and_an_unknown_name_is_not_connected_to(
    world: World,
) -> None:
    world.limit(Wires(failures=2), retries=2)
    world.origin.answers["/"] = body(b"image")
    assert await world.get() == b"image"
    assert len(world.wires.connected) == 3
    with pytest.raises(OriginFailed, match=r"unknown\.example"):
        await world.fetcher.fetch("http://unknown.example/", NEVER)
    assert len(world.wires.connected) == 3


async def test_an_address_that_does_not_answer_times_out_after_every_retry(world: World) -> None:
    world.limit(Wires(deaf=["127.0.0.1"]), connect_timeout=0.1, retries=1)
    with pytest.raises(OriginTimedOut, match="connected"):
        await world.get()
    assert len(world.wires.connected) == 2


async def test_the_requests_deadline_comes_first_when_it_is_the_nearest(world: World) -> None:
    world.origin.answers["/"] = silent()
    now = asyncio.get_running_loop().time()
    with pytest.raises(DeadlineExceeded):
        await world.get(deadline=Deadline(now + 0.05))
    await world.origin.gone.wait()
    assert world.outcomes == ["timed_out"]


async def test_one_host_gets_its_limit_and_keeps_no_other_host_waiting(world: World) -> None:
    world.limit(per_host=2)
    release = asyncio.Event()
    world.origin.answers["/held"] = held(release, b"held")
    world.origin.answers["/free"] = body(b"free")
    crowd = [
        asyncio.create_task(world.fetcher.fetch(world.origin.url("/held", host), NEVER))
        for host in ("one.example", "ONE.example", "one.example.", "one.example") * 2
    ]
    await world.origin.asked(2)
    for _ in range(3):  # each a whole exchange, in which a third would have come as well
        other = await world.fetcher.fetch(world.origin.url("/free", "two.example"), NEVER)
        assert other.read() == b"free"
    assert len(world.origin.requests) == 2 + 3
    release.set()
    for blob in await asyncio.gather(*crowd):
        assert blob.read() == b"held"
    assert len(world.origin.requests) == 8 + 3


async def test_waiting_for_a_turn_does_not_count_as_the_origins_time(world: World) -> None:
    world.limit(per_host=1, total_timeout=1.0)  # a busy machine answers in less
    world.origin.answers["/"] = sequence(silent(), body(b"image"))
    first = asyncio.create_task(world.get())
    await world.origin.asked(1)
    second = asyncio.create_task(world.get())
    with pytest.raises(OriginTimedOut):
        await first
    assert await second == b"image"


def stored_image(settings: Settings, url: str) -> tuple[bytes, bool]:
    """Return the bytes at an address and whether they are on disk; check what was observed."""
    outcomes: list[str] = []

    async def main() -> tuple[bytes, bool]:
        storage = Storage.from_settings(settings)
        limits = FetchLimits.from_settings(settings)
        fetcher = Fetcher(limits, lambda outcome, _: outcomes.append(outcome), storage=storage)
        try:
            blob = await fetcher.fetch(url, NEVER)
        finally:
            await fetcher.aclose()
        with blob.shown():
            return blob.read(), blob.on_disk

    try:
        return asyncio.run(main())
    finally:
        assert len(outcomes) == 1


@pytest.mark.parametrize(("size", "on_disk"), [(10, False), (THRESHOLD + 1, True)])
def test_an_image_is_read_from_an_allowed_folder(tmp_path: Path, size: int, on_disk: bool) -> None:
    (tmp_path / "a.jpg").write_bytes(bytes(size))
    settings = Settings(storage_allow=(tmp_path.as_uri(),))
    assert stored_image(settings, (tmp_path / "a.jpg").as_uri()) == (bytes(size), on_disk)


@pytest.mark.parametrize(
    ("url", "error", "match"),
    [
        ("file:///etc/passwd", AddressRefused, "DARKROOM_STORAGE_ALLOW"),
        ("s3://bucket/a.jpg", AddressRefused, "DARKROOM_STORAGE_ALLOW"),
        ("{folder}/none.jpg", NotFound, "there is no such file"),
        ("{folder}/../a.jpg", InvalidParameter, "not allowed"),
        ("{folder}/large.jpg", TooLarge, "DARKROOM_MAX_IMAGE_BYTES"),
    ],
)
def test_every_other_address_is_its_own_error(
    tmp_path: Path, url: str, error: type[ServiceError], match: str
) -> None:
    (tmp_path / "large.jpg").write_bytes(bytes(1001))
    settings = Settings(storage_allow=(tmp_path.as_uri(),), max_image_bytes=1000)
    with pytest.raises(error, match=match):
        stored_image(settings, url.format(folder=tmp_path.as_uri()))


class SlowStorage(Storage):
    """Storage whose files come once they are `released`; `begun` has the last letters of them."""

    def __init__(self) -> None:
        super().__init__({})
        self.begun = ""
        self.released = asyncio.Event()

    def readable(self, address: str) -> Location:
        return parse(address)

    async def pieces(self, location: Location, _most: int) -> AsyncGenerator[bytes, None]:
        self.begun += str(location)[-1]
        await self.released.wait()
        yield b"image"


@pytest.mark.parametrize(("client", "begun"), [("one", "abcx"), (clients.LOCAL, "abcd")])
async def test_a_client_with_slow_files_leaves_turns_to_others_but_the_command_line_has_no_share(
    client: str, begun: str
) -> None:
    storage = SlowStorage()
    fetcher = Fetcher(FetchLimits.from_settings(Settings(fetch_concurrency=4)), storage=storage)
    tasks = [
        asyncio.create_task(
            fetcher.fetch(f"file:///{name}", NEVER, "two" if name in "xy" else client)
        )
        for name in "abcdefxy"
    ]
    for _ in range(9):
        await asyncio.sleep(0)
    assert storage.begun == begun
    storage.released.set()
    for blob in await asyncio.gather(*tasks):
        blob.close()
    await fetcher.aclose()
