"""What was observed is written together soon after, and equals single observations."""

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest

from app.telemetry.metrics import ManyHistogram, Metrics
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
