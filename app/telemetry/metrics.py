"""Define all Prometheus metrics. Labels never contain ids or URLs, which would be without bound.

Each of several front ends answers with the metrics of all: prometheus_client keeps the values in
files of a folder that the processes share.
"""

import asyncio
import math
import os
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from models.api.jobs import JobState
from models.domain.job import ReleaseReason, counts

disable_created_metrics()  # they double the series and are not used

_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Seconds; the last is the longest deadline of a request unless a setting says otherwise."""
_STAGE_BUCKETS = (0.0005, 0.001, 0.0025, *_HTTP_BUCKETS)
_BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


CHILDREN = 512
"""Combinations of labels whose child objects are cached, for each metric of every image: to look a
child up by its labels costs more than to observe a value."""

DELAY = 0.02
"""Seconds after which an observation is written. A scrape waits as long before it reads the metrics
of other processes, so that they contain everything that was answered before."""

OPENMETRICS = "application/openmetrics-text"

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the shared folder, set before prometheus_client is imported."""

FOLDER_PREFIX = "darkroom-metrics"


class Metrics:
    """The metrics of a server, in a registry of their own.

    An image adds to 13 values, which takes a twentieth of the CPU time of a front end. Where
    several front ends share their metrics, each addition also writes to a file and takes 4 µs. So
    equal metrics of `DELAY` seconds are written in one addition: `flush` is called then, before
    metrics are read, and when the service has stopped.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._shared = METRICS_FOLDER in os.environ
        self._collecting = asyncio.Lock()
        self._texts: dict[str, tuple[float, bytes]] = {}
        self.now: Collector = CollectorRegistry()
        """The state of the server: it is collected on the event loop, whose objects it reads."""
        self.system: Sequence[Collector] = ()
        """Collectors of processes and GPUs, which read them on a thread."""

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"darkroom_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str, several: str = "livesum") -> Gauge:
            mode: Any = several
            return Gauge(
                f"darkroom_{name}", text, labels, registry=registry, multiprocess_mode=mode
            )

        def histogram(
            name: str, text: str, buckets: Sequence[float], *labels: str
        ) -> ManyHistogram:
            name = f"darkroom_{name}"
            return ManyHistogram(name, text, labels, buckets=buckets, registry=registry)

        text = "Time from the first byte of a request to the last of its answer."
        labels = ("method", "route", "status")
        self.requests = histogram("http_request_duration_seconds", text, _HTTP_BUCKETS, *labels)
        text = "Time of one image in one stage."
        self.stages = histogram("stage_duration_seconds", text, _STAGE_BUCKETS, "stage")
        text = "Time to fetch one URL."
        self.fetches = histogram("fetch_duration_seconds", text, _HTTP_BUCKETS, "outcome")
        text = "Images answered: ok, or the problem's code."
        self.images = counter("images_total", text, "operation", "outcome")
        self.rejections = counter("rejections_total", "Requests refused by admission.", "reason")
        text = "Images not computed, because If-None-Match named the ETag of the answer."
        self.not_modified = counter("images_not_modified_total", text)
        text = "Images whose result was kept in the cache."
        self.result_cache_hits = counter("result_cache_hits_total", text)
        text = "Images whose result the cache did not have."
        self.result_cache_misses = counter("result_cache_misses_total", text)
        text = "Images answered by the result of an equal one in flight."
        self.results_shared = counter("results_shared_total", text)
        self.result_cache_bytes = gauge("result_cache_bytes", "Bytes of results that are kept.")
        self.decoder_ends = counter(
            "decoder_ends_total",
            "Decoder processes that ended, each replaced by a new one: killed by a limit, with a "
            "request that ended early, by a crash.",
            "reason",
        )
        text = "Images in a micro-batch."
        self.batch_size = histogram("batch_size", text, _BATCH_BUCKETS, "operation", "network")
        text = "Micro-batches by the reason of their release."
        self.batch_releases = counter("batch_releases_total", text, "reason")
        text = "Images in finished micro-batches."
        self.device_images = counter("device_images_total", text, "device")
        text = "Time in which workers had a batch on the device, added up over its workers."
        self.device_seconds = counter("device_busy_seconds_total", text, "device")
        text = "Items of jobs that were done: ok or failed."
        self.job_items = counter("job_items_total", text, "outcome")
        text = "Jobs of the data folder."
        self.jobs = gauge("jobs", text, "state", several="livemostrecent")
        self.connections = gauge("connections", "Open connections.")
        text = "Connections refused or ended by the server."
        self.connections_ended = counter("connections_ended_total", text, "reason")
        self._image = lru_cache(CHILDREN)(self.images.labels)
        self._stage = lru_cache(CHILDREN)(self.stages.labels)
        self._request = lru_cache(CHILDREN)(self.requests.labels)
        self._noted: defaultdict[Counter | ManyHistogram, list[float]] = defaultdict(list)

    def on_image(self, operation: str, outcome: str, stages: Iterable[Mapping[str, float]]) -> None:
        """Note that an image was answered, with the seconds of its stages."""
        if counts():
            self._note(self._image(operation, outcome), 1.0)
            for seconds in stages:
                for stage, value in seconds.items():
                    self._noted[self._stage(stage)].append(value)

    def on_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note that a request was answered."""
        if counts():
            self._note(self._request(method, route, str(status)), seconds)

    def _note(self, metric: Any, value: float) -> None:
        if not self._noted:
            asyncio.get_running_loop().call_later(DELAY, self.flush)
        self._noted[metric].append(value)

    def flush(self) -> None:
        """Add everything that was noted to the metrics.

        If a metric cannot be written, the rest is lost, but never added twice, and what is noted
        afterwards is written again.
        """
        noted, self._noted = self._noted, defaultdict(list)
        for metric, values in noted.items():
            if isinstance(metric, ManyHistogram):
                metric.observe_all(values)
            else:
                metric.inc(sum(values))

    def on_jobs(self, states: Mapping[str, int]) -> None:
        """Set the number of jobs in each state; all processes see the same jobs."""
        for state in get_args(JobState):
            self.jobs.labels(state).set(states.get(state, 0))

    def on_batch(
        self,
        operation: str,
        network: str,
        size: int,
        reason: ReleaseReason,
        device: str,
        seconds: float,
    ) -> None:
        """Count a finished micro-batch, which kept its device busy for `seconds`.

        Worker threads call this too; `network` is empty for filters.
        """
        self.batch_size.labels(operation, network).observe(size)
        self.batch_releases.labels(reason.value).inc()
        self.device_images.labels(device).inc(size)
        self.device_seconds.labels(device).inc(seconds)

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that an Accept header asks for, and its media type.

        The metrics are collected in a thread, because reading many processes and GPUs takes longer
        than a request may wait for the event loop. Scrapers that wait get the same text, which
        counts all that happened before they asked.
        """
        asked = time.monotonic()
        encode, kind = choose_encoder(f"{OPENMETRICS}; version=1.0.0" * (OPENMETRICS in accept))
        async with self._collecting:
            begun, text = self._texts.get(kind, (-math.inf, b""))
            if begun < asked:
                begun = time.monotonic()
                if self._shared:
                    await asyncio.sleep(DELAY)
                text = await asyncio.to_thread(encode, self.snapshot())
                self._texts[kind] = begun, text
            return text, kind

    def snapshot(self) -> Collector:
        """Return the metrics for a scraper; with several front ends they are the sums of all.

        Call this on the event loop, and collect the result in any thread.
        """
        self.flush()
        own = MultiProcessCollector(CollectorRegistry()) if self._shared else self.registry
        return _Snapshot([*self.now.collect()], [own, *self.system])


class _Snapshot(Collector):
    """Collector of families that have been collected, and of further collectors."""

    def __init__(self, collected: Sequence[Metric], others: Sequence[Collector]) -> None:
        self._collected, self._others = collected, others

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._collected
        for each in self._others:
            yield from each.collect()


class ManyHistogram(Histogram):
    """A histogram to which many values are added at once, with one addition for each bucket."""

    def observe_all(self, values: Sequence[float]) -> None:
        """Observe each value; the metric must have its labels."""
        bounds, numbers = self._upper_bounds, dict[int, int]()
        for value in values:
            place = bisect_left(bounds, value)  # the first bucket whose bound is not below it
            numbers[place] = numbers.get(place, 0) + 1
        self._sum.inc(sum(values))
        for place, number in numbers.items():
            self._buckets[place].inc(number)
