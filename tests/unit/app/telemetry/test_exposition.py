"""Metrics for scrapers: one collection at a time, in a thread, shared and kept for a moment."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.telemetry import exposition
from app.telemetry.exposition import LONGEST_ACCEPT, Exposition
from models.domain.errors import Unavailable
from tests.fakes import GUARD

TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Counting(Collector):
    """A collector that counts its collections."""

    collected: int = 0
    at_once: int = 0
    most_at_once: int = 0
    threads: set[int] = field(default_factory=set)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def collect(self) -> Iterator[Metric]:
        self.threads.add(threading.get_ident())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.gate.wait(GUARD)
        self.collected += 1
        yield GaugeMetricFamily("collected", "Collections.", value=self.collected)
        self.at_once -= 1

    def exposition(self) -> Exposition:
        return Exposition(lambda: self)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(GUARD):
            await test()

    asyncio.run(bounded())


def test_a_collection_runs_beside_the_event_loop() -> None:
    async def test() -> None:
        counting = Counting()
        body, kind = await counting.exposition().text("")
        assert b"collected 1.0" in body
        assert kind == TEXT
        assert threading.get_ident() not in counting.threads

    run(test)


def test_a_scraper_that_asks_now_and_then_gets_values_of_its_moment() -> None:
    async def test() -> None:
        counting = Counting()
        made = counting.exposition()
        assert b"collected 1.0" in (await made.text(""))[0]
        assert b"collected 2.0" in (await made.text(""))[0]

    run(test)


def test_scrapers_at_once_share_one_collection_after_the_running_one() -> None:
    async def test() -> None:
        counting = Counting()
        made = counting.exposition()
        counting.gate.clear()
        asked = [asyncio.create_task(made.text(""))]
        while not counting.at_once:  # noqa: ASYNC110 (a thread)
            await asyncio.sleep(0)
        asked += [asyncio.create_task(made.text("")) for _ in range(50)]
        counting.gate.set()
        await asyncio.gather(*asked)
        assert counting.collected == 2
        assert counting.most_at_once == 1

    run(test)


def test_a_scraper_that_leaves_does_not_let_a_second_collection_start_beside_its_own() -> None:
    async def test() -> None:
        counting = Counting()
        made = counting.exposition()
        counting.gate.clear()
        first = asyncio.create_task(made.text(""))
        while not counting.at_once:  # noqa: ASYNC110 (a thread)
            await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(made.text(""))
        await asyncio.wait([first])
        counting.gate.set()
        assert b"collected 2.0" in (await second)[0]
        assert counting.most_at_once == 1

    run(test)


def test_a_failed_collection_does_not_fail_the_next_one() -> None:
    async def test() -> None:
        broken = [True]

        def snapshot() -> Collector:
            if broken.pop():
                raise OSError("no descriptor")
            return Counting()

        broken.insert(0, False)
        made = Exposition(snapshot)
        with pytest.raises(OSError, match="no descriptor"):
            await made.text("")
        assert b"collected 1.0" in (await made.text(""))[0]

    run(test)


def test_a_collection_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        counting = Counting()
        counting.gate.clear()
        monkeypatch.setattr(exposition, "LATE", 0.01)
        made = counting.exposition()
        for _ in range(2):
            with pytest.raises(Unavailable, match="not collected within"):
                await made.text("")
        counting.gate.set()
        assert counting.most_at_once == 1

    run(test)


def test_a_version_that_is_not_known_counts_as_not_asked_for() -> None:
    async def test() -> None:
        assert (await Counting().exposition().text("text/plain; version=x"))[1] == TEXT

    run(test)


def test_prometheus_gets_openmetrics() -> None:
    accept = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1"
    )

    async def test() -> None:
        body, kind = await Counting().exposition().text(accept)
        assert kind.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
        assert body.endswith(b"# EOF\n")

    run(test)


def test_a_long_list_of_formats_is_not_looked_at() -> None:
    async def test() -> None:
        open_metrics, made = "application/openmetrics-text;version=1.0.0", Counting().exposition()
        assert (await made.text(open_metrics))[1].startswith("application/openmetrics-text")
        assert (await made.text("," * LONGEST_ACCEPT + open_metrics))[1] == TEXT

    run(test)
