import asyncio
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address

import pytest

from app.fetch import name_cache
from app.fetch.name_cache import CachingResolver
from app.fetch.pinned_network import asking
from app.urls.address_policy import Address
from tests.network import Names


class Clock:
    """A clock that stands still between steps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(scenario: Callable[[Clock], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Clock())

    asyncio.run(main())


def test_a_name_is_resolved_once_until_its_time_is_over() -> None:
    async def scenario(clock: Clock) -> None:
        names = Names({"a.example": [["1.1.1.1"], ["2.2.2.2"]]})
        known = CachingResolver(names, 30, clock)
        assert await known("a.example", 80) == [ip_address("1.1.1.1")]
        clock.now = 29.9
        assert await known("A.EXAMPLE", 443) == [ip_address("1.1.1.1")]
        clock.now = 30
        assert await known("a.example", 80) == [ip_address("2.2.2.2")]
        assert names.asked == ["a.example", "a.example"]

    run(scenario)


def test_a_name_with_a_dot_at_its_end_is_another_name() -> None:
    async def scenario(clock: Clock) -> None:
        known = CachingResolver(Names({"images": [["1.1.1.1"]]}), 30, clock)
        with pytest.raises(OSError, match="unknown"):
            await known("images.", 80)
        assert await known("images", 80) == [ip_address("1.1.1.1")]

    run(scenario)


def test_a_name_without_addresses_is_asked_again_soon() -> None:
    async def scenario(clock: Clock) -> None:
        names = Names({})
        known = CachingResolver(names, 30, clock)
        for _ in range(2):
            with pytest.raises(OSError, match="unknown"):
                await known("a.example", 80)
        assert len(names.asked) == 1
        clock.now = name_cache.FAILURE
        with pytest.raises(OSError, match="unknown"):
            await known("a.example", 80)
        assert len(names.asked) == 2

    run(scenario)


def test_zero_seconds_keep_nothing() -> None:
    async def scenario(clock: Clock) -> None:
        names = Names({"a.example": [["1.1.1.1"]]})
        known = CachingResolver(names, 0, clock)
        await known("a.example", 80)
        await known("a.example", 80)
        assert len(names.asked) == 2
        assert len(known) == 0

    run(scenario)


def test_the_number_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_cache, "MOST_NAMES", 3)

    async def scenario(clock: Clock) -> None:
        known = CachingResolver(Names({}), 30, clock)
        for number in range(10):
            with pytest.raises(OSError, match="unknown"):
                await known(f"{number}.example", 80)
        assert len(known) == 3

    run(scenario)


def test_a_client_does_not_wait_for_the_resolution_of_another_one() -> None:
    async def scenario(clock: Clock) -> None:
        async def stuck_for_a(_host: str, _port: int) -> Sequence[Address]:
            if asking.get() == "a":
                await asyncio.Event().wait()
            return [ip_address("1.1.1.1")]

        async def ask(client: str) -> Sequence[Address]:
            asking.set(client)
            return await known("a.example", 80)

        known = CachingResolver(stuck_for_a, 30, clock)
        waiting = asyncio.create_task(ask("a"))
        await asyncio.sleep(0)
        assert await asyncio.create_task(ask("b")) == [ip_address("1.1.1.1")]
        waiting.cancel()

    run(scenario)
