"""Collect values that are read when metrics are requested: load, limits, networks, degradation."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from app.admission.permits import Usage
from models.api.schemas import ModelRecord
from models.domain.backend import Load
from models.version import VERSION


class AtScrape(Collector):
    """Collector of what the whole server does now; functions return what may change.

    `models` returns the records of the networks that have weights, `degraded` the reason why the
    device is not the one that was asked for, or None. `devices` returns the load of each device,
    with the UUID of a GPU.
    """

    def __init__(
        self,
        load: Callable[[], Load],
        usage: Usage,
        models: Callable[[], Iterable[ModelRecord]],
        degraded: Callable[[], str | None],
        devices: Callable[[], Iterable[tuple[Load, str]]] = tuple,
    ) -> None:
        self._devices = devices
        self._load = load
        self._usage = usage
        self._models = models
        self._degraded = degraded

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance, so that registering reads no values."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield load, limits and networks as they are now."""
        load = self._load()
        build = {"version": VERSION, "device": load.device}
        yield InfoMetricFamily("darkroom_build", "The version that runs, and its device.", build)
        for name, text, count in (
            ("queue_images", "Images waiting for the device.", load.queued_jobs),
            ("queue_pixels", "Pixels waiting for the device.", load.queued_pixels),
            ("running_images", "Images on the device.", load.running_jobs),
            ("worker_alive", "1 while a worker runs.", load.alive),
            (
                "degraded",
                "1 while it does not compute as it was asked to; /readyz?verbose says why.",
                self._degraded() is not None,
            ),
        ):
            yield GaugeMetricFamily(f"darkroom_{name}", text, value=float(count))
        for name, text, value in self._usage.gauges():
            yield GaugeMetricFamily(f"darkroom_{name}", text, value=value)
        yield from self._limits()
        yield self._networks()
        yield from self._each_device()

    def _each_device(self) -> Iterator[Metric]:
        """Yield the queue and the rate of each device, and the UUID of a GPU."""
        info = InfoMetricFamily("darkroom_device", "The devices.", labels=["device"])
        text = "Images waiting for the device or on it."
        queue = GaugeMetricFamily("darkroom_device_queue_images", text, labels=["device"])
        text = "Images that the device computes in a second while it is busy; 0: not known yet."
        rate = GaugeMetricFamily("darkroom_device_images_per_second", text, labels=["device"])
        for each, uuid in self._devices():
            info.add_metric([each.device], {"uuid": uuid})
            queue.add_metric([each.device], each.queued_jobs + each.running_jobs)
            rate.add_metric([each.device], each.service_rate)
        yield from (info, queue, rate)

    def _limits(self) -> Iterator[Metric]:
        """Yield each limit and its use, both for the whole server."""
        text = "What each limit allows."
        limits = GaugeMetricFamily("darkroom_limit", text, labels=["limit"])
        text = "What is in use of each limit, over all front ends."
        in_use = GaugeMetricFamily("darkroom_in_use", text, labels=["limit"])
        for use in self._usage.uses():
            limits.add_metric([use.name], use.limit)
            in_use.add_metric([use.name], use.in_use)
        yield limits
        yield in_use

    def _networks(self) -> Metric:
        """Return a row of labels for each network that has weights."""
        text = "The networks, their weights and the precision they compute in."
        networks = InfoMetricFamily("darkroom_network", text, labels=["network"])
        for each in self._models():
            row = {
                "weights": each.name,
                "sha256": each.sha256,
                "precision": each.precision,
                "device": each.device,
                "untrained": str(each.random).lower(),
            }
            networks.add_metric([each.network or ""], row)
        return networks
