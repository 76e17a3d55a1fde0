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
    ServiceError,
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


def fails(
    answer: Answer, error: type[ServiceError], *, match: str, asked: int = 1, **limits: Any
) -> list[str]:
    """Assert what becomes of one URL; the outcome that was observed."""
    seen: list[str] = []

    async def scenario(world: World) -> None:
        world.origin.answers["/"] = answer
        with pytest.raises(error, match=match):
            await world.get()
        assert len(world.origin.requests) == asked
        seen.extend(world.outcomes)

    run(scenario, **limits)
    return seen


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


@pytest.mark.parametrize("code", [204, 206, 304, 400, 401, 403, 404, 410, 418, 500, 501])
def test_a_bad_answer_is_named_and_not_asked_for_again(code: int) -> None:
    seen = fails(status(code), OriginFailed, match=f"127.0.0.1 answered {code}")
    assert seen == ["origin_failed"]


def test_a_redirect_without_a_location_is_a_bad_answer() -> None:
    fails(status(302), OriginFailed, match="answered 302")


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_passing_failure_is_retried_with_growing_pauses(code: int) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(status(code), status(code), body(b"image"))
        assert await world.get() == b"image"
        assert world.slept == [0.2, 0.4]
        assert world.outcomes == ["ok"]

    run(scenario, retries=2)


def test_a_lasting_failure_is_reported_after_the_last_retry() -> None:
    fails(status(503), OriginFailed, match="answered 503", asked=3, retries=2)


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry_After": "7"},
        {
            "Retry_After": "Wed, 21 Oct 2015 07:28:07 GMT",
            "Date": "Wed, 21 Oct 2015 07:28:00 GMT",
        },
    ],
    ids=["seconds", "date"],
)
def test_retry_after_is_honoured(headers: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(status(503, **headers), body(b"image"))
        assert await world.get() == b"image"
        assert world.slept == [7.0]

    run(scenario)


@pytest.mark.parametrize("text", ["soon", "-1", "", "1.5", "Wed, 21 Oct 2015 07:28:07 GMT", "0"])
def test_a_retry_after_that_says_nothing_is_a_usual_pause(text: str) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(status(503, Retry_After=text), body(b"image"))
        assert await world.get() == b"image"
        assert world.slept == [0.2]

    run(scenario)


@pytest.mark.parametrize("seconds", [11, 10**400])
def test_a_pause_longer_than_the_time_that_is_left_is_not_begun(seconds: int) -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = status(503, Retry_After=seconds)
        with pytest.raises(OriginFailed, match="answered 503"):
            await world.get()
        assert world.slept == []

    run(scenario, total_timeout=10)


def test_the_pauses_of_all_retries_share_the_total_time() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = status(503, Retry_After=4)
        with pytest.raises(OriginFailed, match="answered 503"):
            await world.get()
        assert world.slept == [4.0, 4.0]

    run(scenario, total_timeout=10, retries=9)


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


def test_a_body_that_breaks_off_is_tried_again_from_its_start() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = sequence(announced(5, b"ima"), body(b"image"))
        assert await world.get() == b"image"

    run(scenario)


def test_a_body_shorter_than_announced_is_never_taken_for_whole() -> None:
    fails(announced(10, b"short"), OriginFailed, match="broke", asked=2, retries=1)


def test_of_a_body_longer_than_announced_only_the_announced_part_is_read() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = announced(5, b"image and more")
        assert await world.get() == b"image"

    run(scenario)


def test_an_announced_length_over_the_limit_is_refused_at_once() -> None:
    seen = fails(announced(100_001, b""), TooLarge, match="100001 bytes")
    assert seen == ["too_large"]


def test_an_endless_body_is_cut_at_the_limit_and_its_connection_closed() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = endless()
        with pytest.raises(TooLarge, match="100000"):
            await world.get()
        await world.origin.gone.wait()
        assert world.outcomes == ["too_large"]

    run(scenario)


def test_a_compressed_body_is_expanded_up_to_the_limit_of_an_image() -> None:
    fails(gzip_bomb(10_000_000), TooLarge, match="more than 100000 bytes")


@pytest.mark.parametrize("answer", [silent(), stalled()], ids=["silent", "stalled"])
def test_an_origin_that_falls_silent_times_out_and_is_not_asked_again(answer: Answer) -> None:
    seen = fails(answer, OriginTimedOut, match="did not send in time", read_timeout=0.05)
    assert seen == ["timed_out"]


def test_an_origin_that_drips_meets_the_total_time() -> None:
    fails(drip(0.01), OriginTimedOut, match="more than 0.1 seconds", total_timeout=0.1)


def test_all_hops_share_the_total_time() -> None:
    async def scenario(world: World) -> None:
        world.origin.answers["/"] = after(0.03, redirect("/"))
        with pytest.raises(OriginTimedOut, match=r"more than 0\.1 seconds"):
            await world.get()

    run(scenario, total_timeout=0.1, max_redirects=20)


def test_an_address_that_does_not_answer_times_out_after_every_retry() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(OriginTimedOut, match="connected"):
            await world.get()
        assert len(world.wires.connected) == 2

    run(scenario, Wires(deaf=["127.0.0.1"]), connect_timeout=0.4, retries=1)


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
