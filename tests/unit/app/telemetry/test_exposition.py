"""Metrics for scrapers: collected in a thread, and shared by scrapers at the same time."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.telemetry.metrics import Metrics

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1"
)


class Counting(Collector):
    """A collector that notes its threads, and how many of them collect at the same time."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.begun, self.most = 0, 0

    def collect(self) -> Iterator[Metric]:
        self.threads.add(threading.get_ident())
        self.begun += 1
        self.most = max(self.most, self.begun)
        yield GaugeMetricFamily("collected", "Collections.", value=1)
        self.begun -= 1


async def test_scrapers_collect_beside_the_event_loop_one_after_another() -> None:
    counting, metrics = Counting(), Metrics()
    metrics.system = [counting]
    asked = [asyncio.create_task(metrics.text("")) for _ in range(50)]
    await asyncio.sleep(0)
    asked.pop().cancel()  # the others wait for their own
    assert all(b"collected 1.0" in body for body, _ in await asyncio.gather(*asked))
    assert threading.get_ident() not in counting.threads
    assert counting.most == 1


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
