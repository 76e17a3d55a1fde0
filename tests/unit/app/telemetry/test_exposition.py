"""Metrics for scrapers: collected in a thread, and shared by scrapers at the same time."""

import asyncio
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.telemetry.metrics import Metrics
from tests.fakes import GUARD

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1"
)


class Counting(Collector):
    """A collector that counts its collections, each of which waits for the `gate`."""

    def __init__(self) -> None:
        self.collected = 0
        self.threads: set[int] = set()
        self.begun, self.gate = threading.Event(), threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.gate.wait(GUARD)
        self.collected += 1
        yield GaugeMetricFamily("collected", "Collections.", value=self.collected)


async def metrics_of(counting: Collector) -> Metrics:
    metrics = Metrics()
    metrics.watch([], [counting])
    return metrics


async def test_scrapers_at_once_share_a_collection_beside_the_event_loop() -> None:
    counting = Counting()
    metrics = await metrics_of(counting)
    asked = [asyncio.create_task(metrics.text("")) for _ in range(50)]
    await asyncio.sleep(0)
    asked.pop().cancel()  # the others keep the collection
    counting.gate.set()
    assert all(b"collected 1.0" in body for body, _ in await asyncio.gather(*asked))
    assert threading.get_ident() not in counting.threads
    assert b"collected 2.0" in (await metrics.text(""))[0]


async def test_scrapers_that_come_during_a_collection_share_the_next_one() -> None:
    counting = Counting()
    metrics = await metrics_of(counting)
    asked = [asyncio.create_task(metrics.text(""))]
    assert await asyncio.to_thread(counting.begun.wait, GUARD)
    asked += [asyncio.create_task(metrics.text("")) for _ in range(2)]
    await asyncio.sleep(0)
    counting.gate.set()
    found = [body for body, _ in await asyncio.gather(*asked)]
    assert [b"collected 1.0" in body for body in found] == [True, False, False]
    assert [b"collected 2.0" in body for body in found] == [False, True, True]


async def test_a_failed_collection_does_not_fail_the_next_one() -> None:
    class Failing(Collector):
        faults: ClassVar = [OSError("no descriptor")]

        def collect(self) -> Iterator[Metric]:
            if self.faults:
                raise self.faults.pop()
            yield GaugeMetricFamily("collected", "Collections.", value=1)

    metrics = await metrics_of(Failing())
    with pytest.raises(OSError, match="no descriptor"):
        await metrics.text("")
    assert b"collected 1.0" in (await metrics.text(""))[0]


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", b"\n"),
        ("text/plain; version=x", "text/plain; version=0.0.4; charset=utf-8", b"\n"),
        (PROMETHEUS, "application/openmetrics-text; version=1.0.0; charset=utf-8", b"# EOF\n"),
    ],
)
def test_a_scraper_gets_the_format_that_it_asks_for(accept: str, kind: str, end: bytes) -> None:
    body, found = asyncio.run(Metrics().text(accept))
    assert found.startswith(kind)
    assert body.endswith(end)
