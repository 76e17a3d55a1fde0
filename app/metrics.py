"""Prometheus metrics: every name in one place. Labels never carry ids or URLs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily, Metric

from models.backend import Load
from models.job import ReleaseReason

_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_STAGE_BUCKETS = (0.0005, 0.001, 0.0025, *_HTTP_BUCKETS)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The instruments of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        self.requests = self._histogram(
            "http_request_duration_seconds",
            "Time from the first byte of a request to the last of its answer.",
            ("method", "route", "status"),
            _HTTP_BUCKETS,
        )
        self.stages = self._histogram(
            "stage_duration_seconds", "Time of one image in one stage.", ("stage",), _STAGE_BUCKETS
        )
        self.batch_size = self._histogram(
            "batch_size", "Images in a micro-batch.", ("operation",), _BATCH_BUCKETS
        )
        self.fetches = self._histogram(
            "fetch_duration_seconds", "Time to fetch one URL.", ("outcome",), _HTTP_BUCKETS
        )
        self.images = self._counter(
            "images_total", "Images answered: ok, or the problem's code.", ("operation", "outcome")
        )
        self.rejections = self._counter(
            "rejections_total", "Requests refused at the door.", ("reason",)
        )
        self.batch_releases = self._counter(
            "batch_releases_total", "Micro-batches by the reason of their release.", ("reason",)
        )
        build = Info("darkroom_build", "What runs.", registry=registry)
        build.info({"version": version("darkroom")})

    def _histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> Histogram:
        return Histogram(f"darkroom_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"darkroom_{name}", text, labels, registry=self.registry)

    def on_batch(self, operation: str, size: int, reason: ReleaseReason) -> None:
        """A finished micro-batch; called on a worker thread."""
        self.batch_size.labels(operation).observe(size)
        self.batch_releases.labels(reason.value).inc()

    def on_fetch(self, outcome: str, seconds: float) -> None:
        """A finished fetch."""
        self.fetches.labels(outcome).observe(seconds)

    def watch(self, load: Callable[[], Load], in_flight: Callable[[], tuple[int, int]]) -> None:
        """Read the backend's load and the admitted images and bytes whenever metrics are asked."""
        self.registry.register(_Gauges(load, in_flight))


class _Gauges:
    """Values read at scrape time."""

    def __init__(self, load: Callable[[], Load], in_flight: Callable[[], tuple[int, int]]) -> None:
        self._load = load
        self._in_flight = in_flight

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        load = self._load()
        images, n_bytes = self._in_flight()
        for name, text, value in (
            ("queue_images", "Images waiting for the device.", load.queued_jobs),
            ("queue_pixels", "Pixels waiting for the device.", load.queued_pixels),
            ("running_images", "Images on the device.", load.running_jobs),
            ("worker_alive", "1 while the worker works.", load.alive),
            ("in_flight_images", "Images admitted and not yet answered.", images),
            ("in_flight_bytes", "Upload bytes admitted and not yet answered.", n_bytes),
        ):
            yield GaugeMetricFamily(f"darkroom_{name}", text, value=float(value))
