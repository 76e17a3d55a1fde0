import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import pytest

from app.fetch.fetcher import Fetcher, FetchLimits
from app.intake import spool
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import (
    AddressRefused,
    DeadlineExceeded,
    OriginFailed,
    OriginTimedOut,
    TooLarge,
)
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import (
    Answer,
    Origin,
    after,
    announced,
    body,
    drip,
    endless,
    gzip_bomb,
    held,
    origin,
    redirect,
    sequence,
    silent,
    stalled,
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
    fetcher: Fetcher
    wires: Wires
    slept: list[float] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    async def get(self, path: str = "/", deadline: Deadline = NEVER) -> bytes:
        blob = await self.fetcher.fetch(self.origin.url(path), deadline)
        try:
            return blob.read()
        finally:
            blob.close()


def run(
    scenario: Callable[[World], Awaitable[None]], wires: Wires | None = None, **limits: Any
) -> None:
    async def main() -> None:
        async with origin() as there:
            names = {
                name: [["127.0.0.1"]] for name in ("one.example", "one.example.", "two.example")
            }
            slept, outcomes = list[float](), list[str]()

            async def sleep(seconds: float) -> None:
                slept.append(seconds)

            below = wires or Wires()
            fetcher = Fetcher(
                replace(LOCAL, **limits),
                lambda outcome, _seconds: outcomes.append(outcome),
                Names(names),
                below,
                sleep,
                lambda: 1.0,
            )
            async with asyncio.timeout(100):
                await scenario(World(there, fetcher, below, slept, outcomes))
            await fetcher.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("size", [0, 1, 1000, 1001, 100_000])
def test_a_body_arrives_whole_in_memory_or_on_disk(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(spool, "THRESHOLD", 1000)

    async def scenario(world: World) -> None:
        data = bytes(range(256)) * (size // 256 + 1)
        world.origin.answers["/"] = body(data[:size])
        blob = await world.fetcher.fetch(world.origin.url(), NEVER)
        assert blob.read() == data[:size]
        assert blob.on_disk == (size > 1000)
        assert world.outcomes == ["ok"]
        blob.close()

    run(scenario)


def test_an_origin_sees_who_asks_and_for_what_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/cat"] = body(b"image")
        await world.get("/cat?size=2#secret")
        [request] = world.origin.requests
        assert request.target == "/cat?size=2"
        assert request.headers == {
            "host": f"127.0.0.1:{world.origin.port}",
            "user-agent": f"darkroom/{version('darkroom')}",
            "accept": "image/*",
            "accept-encoding": "identity",
        }

    run(scenario)


def test_cookies_are_not_kept() -> None:
    async def scenario(world: World) -> None:
        cookie = {"Set_Cookie": "id=1; Path=/"}
        world.origin.answers["/"] = status(302, Location="/next", **cookie)
        world.origin.answers["/next"] = body(b"image", **cookie)
        await world.get()
        await world.get()
        assert len(world.origin.requests) == 4
        assert not any("cookie" in request.headers for request in world.origin.requests)

    run(scenario)


def test_proxies_and_credentials_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")

    async def scenario(world: World) -> None:
        world.origin.answers["/"] = body(b"image")
        assert await world.get() == b"image"
        assert "authorization" not in world.origin.requests[0].headers
        assert world.wires.connected == ["127.0.0.1"]

    run(scenario)


def test_urls_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(status(503), body(b"image"))
        await world.get("/?token=secret")

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert "secret" not in caplog.text


def test_a_connection_is_used_again() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = body(b"image")
        for _ in range(3):
            await world.get()
        assert (world.origin.connections, len(world.origin.requests)) == (1, 3)

    run(scenario)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/cat", "cat", "//127.0.0.1:{port}/cat", "/a/../cat#top"])
def test_redirects_are_followed(code: int, location: str) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = redirect(location.format(port=world.origin.port), code)
        world.origin.answers["/cat"] = body(b"image")
        assert await world.get() == b"image"

    run(scenario)


def test_redirects_are_followed_up_to_the_limit_and_no_further() -> None:
    async def scenario(world: World) -> None:
        for n in range(4):
            world.origin.answers[f"/{n}"] = redirect(f"/{n + 1}")
        world.origin.answers["/4"] = body(b"image")
        assert await world.get("/1") == b"image"
        with pytest.raises(OriginFailed, match="more than 3 redirects"):
            await world.get("/0")
        assert [request.target for request in world.origin.requests[4:]] == ["/0", "/1", "/2", "/3"]

    run(scenario, max_redirects=3)


def test_a_redirect_to_a_private_address_is_refused_in_the_middle_of_a_chain() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = redirect("/next")
        world.origin.answers["/next"] = redirect("http://169.254.169.254/latest/meta-data/")
        with pytest.raises(AddressRefused):
            await world.get()
        assert set(world.wires.connected) == {"127.0.0.1"}
        assert [request.target for request in world.origin.requests] == ["/", "/next"]
        assert world.outcomes == ["refused"]

    run(scenario)


DATES = {"Retry_After": "Wed, 21 Oct 2015 07:28:07 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}
IMAGE = body(b"image")


@pytest.mark.parametrize(
    ("answers", "slept"),
    [
        *[([status(code), status(code), IMAGE], [0.2, 0.4]) for code in (429, 502, 503, 504)],
        ([status(503, Retry_After="7"), IMAGE], [7.0]),
        ([status(503, **DATES), IMAGE], [7.0]),
        *[
            ([status(503, Retry_After=text), IMAGE], [0.2])
            for text in ("soon", "-1", "", "1.5", DATES["Retry_After"], "0")
        ],
        ([announced(5, b"ima"), IMAGE], [0.2]),
        ([announced(5, b"image and more")], []),
    ],
)
def test_a_failure_that_may_pass_is_tried_again_after_a_pause(
    answers: list[Answer], slept: list[float]
) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(*answers)
        assert await world.get() == b"image"
        assert world.slept == slept
        assert world.outcomes == ["ok"]

    run(scenario, retries=2)


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
        (gzip_bomb(10_000_000), "more than 100000 bytes", []),
    ],
)
def test_a_failure_is_named_and_tried_again_while_time_is_left(
    answer: Answer, match: str, slept: list[float]
) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = answer
        with pytest.raises((OriginFailed, TooLarge), match=match) as failed:
            await world.get()
        assert len(world.origin.requests) == 1 + len(slept)
        assert world.slept == slept
        too_large = isinstance(failed.value, TooLarge)
        assert world.outcomes == ["too_large" if too_large else "origin_failed"]

    run(scenario, retries=2, total_timeout=10)


@pytest.mark.parametrize(
    ("answer", "match", "limits"),
    [
        (silent(), "did not send in time", {"read_timeout": 0.05}),
        (stalled(), "did not send in time", {"read_timeout": 0.05}),
        (drip(0.01), r"more than 0\.1 seconds", {"total_timeout": 0.1}),
        (after(0.03, redirect("/")), r"more than 0\.1 seconds", {"total_timeout": 0.1}),
    ],
    ids=["silent", "stalled", "drip", "hops"],
)
def test_an_origin_that_takes_too_long_is_not_asked_again(
    answer: Answer, match: str, limits: dict[str, Any]
) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = answer
        with pytest.raises(OriginTimedOut, match=match):
            await world.get()
        assert world.slept == []
        assert world.outcomes == ["timed_out"]

    run(scenario, max_redirects=20, **limits)


def test_a_pause_beyond_the_deadline_is_not_begun() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = status(503, Retry_After=8)
        now = asyncio.get_running_loop().time()
        with pytest.raises(OriginFailed, match="answered 503"):
            await world.get(deadline=Deadline.after(5, now))
        assert world.slept == []

    run(scenario)


def test_a_failed_connection_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = body(b"image")
        assert await world.get() == b"image"
        assert len(world.wires.connected) == 3

    run(scenario, Wires(failures=2), retries=2)


def test_an_unknown_name_is_the_origins_failure() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(OriginFailed, match=r"unknown\.example"):
            await world.fetcher.fetch("http://unknown.example/", NEVER)
        assert world.wires.connected == []

    run(scenario)


def test_an_endless_body_is_cut_at_the_limit_and_its_connection_closed() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = endless()
        with pytest.raises(TooLarge, match="100000"):
            await world.get()
        await world.origin.gone.wait()
        assert world.outcomes == ["too_large"]

    run(scenario)


def test_an_address_that_does_not_answer_times_out_after_every_retry() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(OriginTimedOut, match="connected"):
            await world.get()
        assert len(world.wires.connected) == 2

    run(scenario, Wires(deaf=["127.0.0.1"]), connect_timeout=0.1, retries=1)


def test_the_requests_deadline_comes_first_when_it_is_the_nearest() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = silent()
        now = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceeded):
            await world.get(deadline=Deadline.after(0.05, now))
        await world.origin.gone.wait()
        assert world.outcomes == ["timed_out"]

    run(scenario)


def test_a_deadline_that_has_passed_makes_no_connection() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(DeadlineExceeded):
            await world.get(deadline=Deadline(asyncio.get_running_loop().time()))
        assert world.wires.connected == []

    run(scenario)


def test_one_host_gets_its_limit_and_keeps_no_other_host_waiting() -> None:
    async def scenario(world: World) -> None:
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

    run(scenario, per_host=2)


def test_waiting_for_a_turn_does_not_count_as_the_origins_time() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(silent(), body(b"image"))
        first = asyncio.create_task(world.get())
        await world.origin.asked(1)
        second = asyncio.create_task(world.get())
        with pytest.raises(OriginTimedOut):
            await first
        assert await second == b"image"

    run(scenario, per_host=1, total_timeout=0.3)


def test_a_cancelled_fetch_closes_its_connection_and_gives_back_its_turn() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(silent(), body(b"image"))
        task = asyncio.create_task(world.get())
        await world.origin.asked(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.origin.gone.wait()
        assert await world.get() == b"image"
        assert world.outcomes == ["ok"]

    run(scenario, per_host=1, concurrency=1)


def test_a_fetch_cancelled_in_the_middle_of_a_spooled_body_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool, "THRESHOLD", 0)

    async def scenario(world: World) -> None:
        world.origin.answers["/"] = drip(0.001)
        task = asyncio.create_task(world.get())
        await world.origin.asked(1)
        await asyncio.wait([task], timeout=0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.origin.gone.wait()

    run(scenario)


def test_closing_the_fetcher_closes_idle_connections() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = body(b"image")
        await world.get()
        assert not world.origin.gone.is_set()
        await world.fetcher.aclose()
        await world.origin.gone.wait()

    run(scenario)
