"""What was observed is written together soon after, and equals single observations."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest

from app.telemetry.metrics import DELAY, ManyHistogram, Metrics
from models.domain.job import uncounted

SECONDS = (0.0, 0.001, 0.25, 0.2500001, 1.0, 1.5, 400.0)
"""Some lie on the bound of a bucket, and one above all."""


def text_of(kind: type[Histogram]) -> tuple[Histogram, CollectorRegistry]:
    registry = CollectorRegistry()
    made = kind("seconds", "Seconds.", ("stage",), buckets=(0.001, 0.25, 1.0), registry=registry)
    return made.labels("one"), registry


def test_many_values_at_once_are_counted_as_one_by_one() -> None:
    many, found = text_of(ManyHistogram)
    single, expected = text_of(Histogram)
    assert isinstance(many, ManyHistogram)
    many.observe_all(SECONDS)
    for each in SECONDS:
        single.observe(each)
    assert generate_latest(found) == generate_latest(expected)


async def test_equal_metrics_are_written_once_and_faults_stop_no_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    metrics, written = Metrics(), list[int]()
    observe_all, faults = ManyHistogram.observe_all, list[Exception]()

    def noted(histogram: ManyHistogram, values: list[float]) -> None:
        if faults:
            raise faults.pop()
        written.append(len(values))
        observe_all(histogram, values)

    monkeypatch.setattr(ManyHistogram, "observe_all", noted)

    def count(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"darkroom_{name}", labels)

    route = {"method": "POST", "route": "/classify", "status": "200"}
    for turns in (1, 2, 3):
        if turns == 2:
            faults.append(OSError("no space is left"))
        for _ in range(5):
            metrics.on_image("classify", "ok", [{"decode": 0.01, "compute": 0.02}])
            metrics.on_request("POST", "/classify", 200, 0.03)
        await asyncio.sleep(2 * DELAY)
        assert count("images_total", operation="classify", outcome="ok") == 5 * turns
        kept = 5 * (turns - (turns > 1))  # the rest of the second time is lost
        assert count("stage_duration_seconds_count", stage="decode") == kept
        assert count("http_request_duration_seconds_count", **route) == kept
        assert written == [5] * 3 * (kept // 5)


async def test_metrics_that_are_read_contain_all_before_but_the_servers_own_work() -> None:
    metrics = Metrics()
    with uncounted():
        metrics.on_image("classify", "ok", [{"fetch": 1.0}])
        metrics.on_request("POST", "/classify", 200, 1.0)
    metrics.on_image("filter", "ok", [])
    text = generate_latest(metrics.snapshot()).decode()
    assert 'darkroom_images_total{operation="filter",outcome="ok"} 1.0' in text
    assert 'operation="classify"' not in text
    assert "darkroom_http_request_duration_seconds_count{" not in text
