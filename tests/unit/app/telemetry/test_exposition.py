"""Metrics for scrapers: collected in a thread."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.telemetry.metrics import Metrics

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1"
)


async def test_metrics_are_collected_in_a_thread_once_for_all_scrapers_that_wait() -> None:
    metrics, threads = Metrics(), list[int]()
    gate = threading.Lock()

    class Counting(Collector):
        def collect(self) -> Iterator[Metric]:
            assert gate.acquire(blocking=False), "two collections at a time"
            threads.append(threading.get_ident())
            time.sleep(0.01)
            gate.release()
            yield GaugeMetricFamily("collected", "Collections.", value=len(threads))

    metrics.system = [Counting()]
    bodies = await asyncio.gather(*(metrics.text("") for _ in range(4)))
    for number, (body, _) in zip((1, 2, 2, 2), bodies, strict=True):
        assert b"collected %d.0" % number in body
    assert threading.get_ident() not in threads


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
