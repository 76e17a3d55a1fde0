"""Metrics for scrapers: collected in a thread, and shared by the scrapers that wait."""

import asyncio
import threading
from collections.abc import Iterator

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
        self.threads: list[int] = []
        self.begun, self.gate = threading.Event(), threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.threads.append(threading.get_ident())
        self.begun.set()
        self.gate.wait(GUARD)
        yield GaugeMetricFamily("collected", "Collections.", value=len(self.threads))


async def test_scrapers_that_come_during_a_collection_share_the_next_one() -> None:
    counting, metrics = Counting(), Metrics()
    metrics.system = [counting]
    first = asyncio.create_task(metrics.text(""))
    assert await asyncio.to_thread(counting.begun.wait, GUARD)
    asked = [asyncio.create_task(metrics.text("")) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()  # its collection goes on, and no second one begins beside it
    asked.pop().cancel()  # the others keep the next collection
    await asyncio.sleep(0)
    assert len(counting.threads) == 1
    counting.gate.set()
    assert all(b"collected 2.0" in body for body, _ in await asyncio.gather(*asked))
    assert threading.get_ident() not in counting.threads


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
