"""Collect what is read when metrics are requested: the load, limits, networks, processes, GPUs."""

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from app.admission.permits import Usage
from app.system.process_family import ProcessUse, boot_time, process_family
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


_DECODERS = "app.decoders.child.fork_server"
"""What the command line of decoder processes and of their parent contains."""

_MEMBER = "app.processes.member"
"""The word of a command line behind which the name of a member of the server stands."""


_DECODERS_OF, _OTHER = "decoders of ", "other"
"""The begin of the name of decoder processes, and the name of processes that are not known."""


class Processes(Collector):
    """Collector of the processes below `root`, which starts all others of the server.

    Processes of one name are added up: the names have a bound, the numbers of processes do not.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._root_name = "server" if root == os.getpid() else "supervisor"
        self._cpu: dict[str, float] = defaultdict(float)

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance, so that registering reads no values."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Read /proc and yield the sums of each name."""
        uses: dict[str, list[ProcessUse]] = defaultdict(list)
        names: dict[int, str] = {}
        for use in process_family(self._root):
            # A process whose parent ended during the walk has another parent already.
            parent = names.get(use.parent, _OTHER)
            name = self._root_name if use.pid == self._root else _name(use, parent)
            names[use.pid] = name
            uses[name].append(use)
        yield from _families(uses)
        yield self._cpu_family(uses)

    def _cpu_family(self, uses: Mapping[str, Sequence[ProcessUse]]) -> Metric:
        """Return the CPU time of each name, which never falls while this process lives.

        Decoders come and go: those that have ended are counted by their parent of the same name. A
        worker that has ended is not: its time would fall to the supervisor at once.
        """
        cpu = CounterMetricFamily("darkroom_process_cpu_seconds", "CPU time.", labels=["process"])
        for name, each in uses.items():
            found = sum(use.cpu for use in each)
            if name.startswith(_DECODERS_OF):
                found += sum(use.cpu_of_ended for use in each)
            self._cpu[name] = max(self._cpu[name], found)
            cpu.add_metric([name], self._cpu[name])
        return cpu


def server_root() -> int:
    """Return the process that started all others: the parent of a front end, or this one."""
    return os.getppid() if "PROMETHEUS_MULTIPROC_DIR" in os.environ else os.getpid()


def _families(uses: dict[str, list[ProcessUse]]) -> Iterator[Metric]:
    booted = boot_time()
    gauge = GaugeMetricFamily
    count = gauge("darkroom_processes", "Processes that run.", labels=["process"])
    memory = gauge(
        "darkroom_process_resident_memory_bytes",
        "Resident memory; what processes share is counted in each of them.",
        labels=["process"],
    )
    files = gauge("darkroom_process_open_fds", "Open file descriptors.", labels=["process"])
    threads = gauge("darkroom_process_threads", "Threads.", labels=["process"])
    started = gauge(
        "darkroom_process_start_time_seconds",
        "Start of the newest process, since 1970; it changes with every restart.",
        labels=["process"],
    )
    for name, each in uses.items():
        count.add_metric([name], len(each))
        memory.add_metric([name], sum(use.resident for use in each))
        files.add_metric([name], sum(use.descriptors for use in each))
        threads.add_metric([name], sum(use.threads for use in each))
        started.add_metric([name], booted + max(use.started for use in each))
    yield from (count, memory, files, threads, started)


def _name(use: ProcessUse, parent: str) -> str:
    """Return what a process does; `parent` is the name of its parent."""
    if any(_DECODERS in word for word in use.words):
        return parent if parent.startswith(_DECODERS_OF) else _DECODERS_OF + parent
    if _MEMBER in use.words[:-1]:
        return use.words[use.words.index(_MEMBER) + 1]
    return _OTHER


log = logging.getLogger("darkroom.metrics")

_PERCENT, _MILLIWATTS = 0.01, 0.001


@dataclass(frozen=True, slots=True)
class _Reading:
    """The name of a gauge, its explanation, and how NVML reads it from a device handle."""

    name: str
    text: str
    read: Callable[[Any, Any], float]


READINGS = (
    _Reading(
        "gpu_memory_used_bytes",
        "Memory in use on the GPU, by all programs.",
        lambda nvml, device: nvml.nvmlDeviceGetMemoryInfo(device).used,
    ),
    _Reading(
        "gpu_memory_total_bytes",
        "Memory of the GPU.",
        lambda nvml, device: nvml.nvmlDeviceGetMemoryInfo(device).total,
    ),
    _Reading(
        "gpu_utilization_ratio",
        "Share of the last sampling period, 0 to 1, in which a kernel ran.",
        lambda nvml, device: nvml.nvmlDeviceGetUtilizationRates(device).gpu * _PERCENT,
    ),
    _Reading(
        "gpu_jpeg_utilization_ratio",
        "Share of the last sampling period, 0 to 1, in which the JPEG engines decoded.",
        lambda nvml, device: nvml.nvmlDeviceGetJpgUtilization(device)[0] * _PERCENT,
    ),
    _Reading(
        "gpu_power_watts",
        "Electric power that the GPU draws.",
        lambda nvml, device: nvml.nvmlDeviceGetPowerUsage(device) * _MILLIWATTS,
    ),
    _Reading(
        "gpu_temperature_celsius",
        "Temperature of the GPU.",
        lambda nvml, device: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
    ),
)


class Gpus(Collector):
    """Collector of the GPUs that CUDA_VISIBLE_DEVICES leaves, by default all of the machine."""

    def __init__(self, nvml: Any, visible: str | None) -> None:
        self._nvml = nvml
        uuids = {}
        for number in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):  # this GPU is lost
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                uuids[str(number)] = nvml.nvmlDeviceGetUUID(handle)
        self._uuids = {
            number: uuid
            for number, uuid in uuids.items()
            if visible is None or _is_visible(visible, number, uuid)
        }

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance, so that registering reads no values."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield a row for each GPU; a GPU without a value has no row."""
        nvml = self._nvml
        info = InfoMetricFamily("darkroom_gpu", "The GPUs.", labels=["gpu"])
        devices = {}
        for number, uuid in self._uuids.items():
            with suppress(nvml.NVMLError):  # this GPU is lost
                device = nvml.nvmlDeviceGetHandleByUUID(uuid)
                driver, name = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlDeviceGetName(device)
                info.add_metric([number], {"uuid": uuid, "name": name, "driver": driver})
                devices[number] = device
        yield info
        for each in READINGS:
            family = GaugeMetricFamily(f"darkroom_{each.name}", each.text, labels=["gpu"])
            for number, device in devices.items():
                with suppress(nvml.NVMLError):  # this GPU does not have it
                    family.add_metric([number], each.read(nvml, device))
            yield family


def gpus() -> Gpus | None:
    """Return the collector, or None where the binding, the driver or a GPU is missing."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        return Gpus(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
    except nvml.NVMLError as error:
        log.info("there are no metrics of GPUs: %s", error)
        return None


def _is_visible(visible: str, number: str, uuid: str) -> bool:
    """Return whether the list, of numbers or of beginnings of UUIDs, names this GPU."""
    words = [word.strip() for word in visible.split(",")]
    return any(word == number or (word[:4] == "GPU-" and uuid.startswith(word)) for word in words)


def system_collectors(with_gpus: bool) -> Iterator[Collector]:
    """Yield the collector of the server's processes, and with `with_gpus` that of its GPUs."""
    yield Processes(server_root())
    if with_gpus and (found := gpus()) is not None:
        yield found
