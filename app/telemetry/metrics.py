"""Define all Prometheus metrics. Labels never contain ids or URLs, which would be without bound.

Each of several front ends answers with the metrics of all: prometheus_client keeps the values in
files of a folder that the processes share.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from app.telemetry.exposition import Exposition
from app.telemetry.observations import DELAY, ManyHistogram, Observations
from models.domain.job import ReleaseReason

disable_created_metrics()  # they double the series and are not used

_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Seconds; the last is the longest deadline of a request unless a setting says otherwise."""
_STAGE_BUCKETS = (0.0005, 0.001, 0.0025, *_HTTP_BUCKETS)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

JOB_STATES = ("queued", "running", "succeeded", "failed", "cancelling", "cancelled", "expired")

CHILDREN = 512
"""Combinations of labels whose child objects are cached, for each metric."""

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the shared folder, set before prometheus_client is imported."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._shared = METRICS_FOLDER in os.environ
        self.exposition = Exposition(self.snapshot, delay=DELAY if self._shared else 0.0)
        self._prompt: Sequence[Collector] = ()
        self._slow: Sequence[Collector] = ()
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
        self.fetches = self._histogram(
            "fetch_duration_seconds", "Time to fetch one URL.", ("outcome",), _HTTP_BUCKETS
        )
        self.images = self._counter(
            "images_total", "Images answered: ok, or the problem's code.", ("operation", "outcome")
        )
        self.rejections = self._counter(
            "rejections_total", "Requests refused by admission.", ("reason",)
        )
        self.not_modified = self._plain_counter(
            "images_not_modified_total",
            "Images not computed, because If-None-Match named the ETag of the answer.",
        )
        self._add_known_results()
        # To look a child up by its labels costs more than to observe a value.
        self.request = lru_cache(CHILDREN)(self.requests.labels)
        image = lru_cache(CHILDREN)(self.images.labels)
        stage = lru_cache(CHILDREN)(self.stages.labels)
        self.observations = Observations(image, stage, self.request)
        self._add_decoders()
        self._add_batches()
        self._add_jobs()
        self._add_gauges()

    def _add_known_results(self) -> None:
        self.result_cache_hits = self._plain_counter(
            "result_cache_hits_total", "Images whose result was kept in the cache."
        )
        self.result_cache_misses = self._plain_counter(
            "result_cache_misses_total", "Images whose result the cache did not have."
        )
        self.results_shared = self._plain_counter(
            "results_shared_total", "Images answered by the result of an equal one in flight."
        )
        self.result_cache_bytes = self._gauge(
            "result_cache_bytes", "Bytes of results that are kept."
        )

    def _add_gauges(self) -> None:
        self.connections = self._gauge("connections", "Open connections.")
        self.connection_limit = Gauge(
            "darkroom_connection_limit",
            "Connections that may be open.",
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        self.connections_ended = self._counter(
            "connections_ended_total", "Connections refused or ended by the server.", ("reason",)
        )
        self.connection_end = lru_cache(CHILDREN)(self.connections_ended.labels)

    def _add_decoders(self) -> None:
        self.decoder_ends = self._counter(
            "decoder_ends_total",
            "Decoder processes that ended, each replaced by a new one: killed by a limit, with a "
            "request that ended early, by a crash.",
            ("reason",),
        )

    def _add_jobs(self) -> None:
        self.job_items = self._counter(
            "job_items_total", "Items of jobs that were done: ok or failed.", ("outcome",)
        )
        self.jobs = Gauge(
            "darkroom_jobs",
            "Jobs of the data folder.",
            ("state",),
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )
        self._job_item = lru_cache(CHILDREN)(self.job_items.labels)

    def on_jobs(self, states: Mapping[str, int]) -> None:
        """Set the number of jobs in each state; all processes see the same jobs."""
        for state in JOB_STATES:
            self.jobs.labels(state).set(states.get(state, 0))

    def on_job_item(self, outcome: str) -> None:
        """Count an item of a job that was done."""
        self._job_item(outcome).inc()

    def _add_batches(self) -> None:
        self.batch_size = self._histogram(
            "batch_size", "Images in a micro-batch.", ("operation", "network"), _BATCH_BUCKETS
        )
        self.batch_releases = self._counter(
            "batch_releases_total", "Micro-batches by the reason of their release.", ("reason",)
        )
        self.device_images = self._counter(
            "device_images_total", "Images in finished micro-batches.", ("device",)
        )
        self.device_seconds = self._counter(
            "device_busy_seconds_total",
            "Time in which workers had a batch on the device, added up over its workers.",
            ("device",),
        )

    def _histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> ManyHistogram:
        name = f"darkroom_{name}"
        return ManyHistogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"darkroom_{name}", text, labels, registry=self.registry)

    def _plain_counter(self, name: str, text: str) -> Counter:
        """Return a counter without labels."""
        return Counter(f"darkroom_{name}", text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"darkroom_{name}", text, registry=self.registry, multiprocess_mode="livesum")

    def on_batch(self, operation: str, network: str, size: int, reason: ReleaseReason) -> None:
        """Count a finished micro-batch, on a worker thread; `network` is empty for filters."""
        self.batch_size.labels(operation, network).observe(size)
        self.batch_releases.labels(reason.value).inc()

    def on_device(self, device: str, images: int, seconds: float) -> None:
        """Count the images of a batch, and the seconds that its device was busy with it."""
        self.device_images.labels(device).inc(images)
        self.device_seconds.labels(device).inc(seconds)

    def on_decoder_end(self, reason: str) -> None:
        """Count the end of a decoder process."""
        self.decoder_ends.labels(reason).inc()

    def on_fetch(self, outcome: str, seconds: float) -> None:
        """Count a finished fetch that took `seconds`."""
        self.fetches.labels(outcome).observe(seconds)

    def watch(self, prompt: Sequence[Collector], slow: Sequence[Collector]) -> None:
        """Ask the collectors whenever metrics are requested; they speak of the whole server.

        Those of `prompt` read what belongs to the event loop, and are asked there; those of `slow`
        are asked in a thread.
        """
        self._prompt, self._slow = prompt, slow

    def snapshot(self) -> Collector:
        """Return the metrics for a scraper; with several front ends they are the sums of all.

        Call this on the event loop, and collect the result in any thread.
        """
        self.observations.flush()
        own: Collector = self.registry
        if self._shared:
            own = CollectorRegistry()
            MultiProcessCollector(own)
        prompt = [family for each in self._prompt for family in each.collect()]
        return _Snapshot(own, prompt, self._slow)


class _Snapshot(Collector):
    """Collector of `own`, of families that have been collected, and of further collectors."""

    def __init__(
        self, own: Collector, collected: Iterable[Metric], others: Sequence[Collector]
    ) -> None:
        self._own, self._collected, self._others = own, collected, others

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics in that order."""
        yield from self._own.collect()
        yield from self._collected
        for each in self._others:
            yield from each.collect()
