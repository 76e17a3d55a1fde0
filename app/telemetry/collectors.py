"""Collect the load, limits, networks, processes and GPUs when metrics are requested."""

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from app.admission import Admission
from app.admission.counters import Total
from app.telemetry.metrics import METRICS_FOLDER
from models.domain.backend import Load
from models.networks.served import ServedNetwork
from models.version import VERSION

log = logging.getLogger("darkroom.metrics")

T = TypeVar("T")

Readings = Sequence[tuple[str, str, Callable[[T], float]]]
"""Names of gauges, their texts, and how the value of each is read."""

GPU_READINGS: Readings[tuple[Any, Any]] = (
    (
        "gpu_memory_used_bytes",
        "Memory in use on the GPU, by all programs.",
        lambda gpu: gpu[0].nvmlDeviceGetMemoryInfo(gpu[1]).used,
    ),
    (
        "gpu_memory_total_bytes",
        "Memory of the GPU.",
        lambda gpu: gpu[0].nvmlDeviceGetMemoryInfo(gpu[1]).total,
    ),
    (
        "gpu_utilization_ratio",
        "Share of the last sampling period, 0 to 1, in which a kernel ran.",
        lambda gpu: gpu[0].nvmlDeviceGetUtilizationRates(gpu[1]).gpu * 0.01,
    ),
    (
        "gpu_jpeg_utilization_ratio",
        "Share of the last sampling period, 0 to 1, in which the JPEG engines decoded.",
        lambda gpu: gpu[0].nvmlDeviceGetJpgUtilization(gpu[1])[0] * 0.01,
    ),
    (
        "gpu_power_watts",
        "Electric power that the GPU draws.",
        lambda gpu: gpu[0].nvmlDeviceGetPowerUsage(gpu[1]) * 0.001,
    ),
    (
        "gpu_temperature_celsius",
        "Temperature of the GPU.",
        lambda gpu: gpu[0].nvmlDeviceGetTemperature(gpu[1], gpu[0].NVML_TEMPERATURE_GPU),
    ),
)
"""The values that NVML reads of a GPU; the argument is the library and the handle of a device."""

_DEVICE_READINGS: Readings[Load] = (
    (
        "device_queue_images",
        "Images waiting for the device or on it.",
        lambda load: load.queued_jobs + load.running_jobs,
    ),
    (
        "device_images_per_second",
        "Images that the device computes in a second while it is busy; 0: not known yet.",
        lambda load: load.service_rate,
    ),
)

Use = Mapping[str, Any]
"""What one process uses, by the names of psutil; None is what only root may know of decoders."""

_USE = ("pid", "ppid", "cmdline", "cpu_times", "create_time", "memory_info", "num_fds")

_PROCESS_READINGS: Readings[Sequence[Use]] = (
    ("processes", "Processes that run.", len),
    (
        "process_resident_memory_bytes",
        "Resident memory; what processes share is counted in each of them.",
        lambda uses: sum(use["memory_info"].rss for use in uses),
    ),
    (
        "process_open_fds",
        "Open file descriptors.",
        lambda uses: sum(use["num_fds"] or 0 for use in uses),
    ),
    (
        "process_start_time_seconds",
        "Start of the newest process, since 1970; it changes with every restart.",
        lambda uses: max(use["create_time"] for use in uses),
    ),
)


def _gauges(
    label: str,
    items: Iterable[tuple[str, T]],
    readings: Readings[T],
    lacking: type[Exception] = KeyError,
) -> Iterator[Metric]:
    """Yield a gauge for each reading, with a row for each item; none where it raises `lacking`."""
    rows = list(items)
    for name, text, read in readings:
        family = GaugeMetricFamily(f"darkroom_{name}", text, labels=[label])
        for value, item in rows:
            with suppress(lacking):
                family.add_metric([value], read(item))
        yield family


@dataclass(frozen=True)
class AtScrape(Collector):
    """Collector of the state of the whole server; functions return values that may change.

    `degraded` returns the reason why the device is not the wanted device, or None;
    `devices` returns the load of each device, with the UUID of a GPU.
    """

    load: Callable[[], Load]
    admission: Admission
    limits: Callable[[], Mapping[str, tuple[int, Total]]]
    """Returns the value of each limit of the server, and what counts its use."""
    networks: Callable[[], Iterable[ServedNetwork]]
    degraded: Callable[[], str | None]
    devices: Callable[[], Iterable[tuple[Load, str]]] = tuple

    def collect(self) -> Iterator[Metric]:
        """Yield load, limits and networks as they are now."""
        load, total = self.load(), self.admission.counters.total
        build = {"version": VERSION, "device": load.device}
        yield InfoMetricFamily("darkroom_build", "The version that runs, and its device.", build)
        for name, text, count in (
            ("queue_images", "Images waiting for the device.", load.queued_jobs),
            ("running_images", "Images on the device.", load.running_jobs),
            ("worker_alive", "1 while a worker runs.", load.alive),
            (
                "degraded",
                "1 while it does not compute as it was asked to; /readyz?verbose says why.",
                self.degraded() is not None,
            ),
            ("in_flight_images", "Images admitted and not yet answered.", total(Total.IMAGES)),
            (
                "predicted_wait_seconds",
                "Time until all admitted work of this front end is done.",
                self.admission.line.left(),
            ),
        ):
            yield GaugeMetricFamily(f"darkroom_{name}", text, value=float(count))
        yield from _gauges(
            "limit",
            self.limits().items(),
            (
                ("limit", "What each limit allows.", lambda limit: limit[0]),
                (
                    "in_use",
                    "What is in use of each limit, over all front ends.",
                    lambda limit: total(limit[1]),
                ),
            ),
        )
        yield self._networks()
        info = InfoMetricFamily("darkroom_device", "The devices.", labels=["device"])
        devices = list(self.devices())
        for each, uuid in devices:
            info.add_metric([each.device], {"uuid": uuid})
        yield info
        yield from _gauges("device", ((each.device, each) for each, _ in devices), _DEVICE_READINGS)

    def _networks(self) -> Metric:
        """Return a row of labels for each network that has weights."""
        text = "The networks, their weights and the precision they compute in."
        networks = InfoMetricFamily("darkroom_network", text, labels=["network"])
        for network in self.networks():
            if network.model is None:
                continue
            each = network.model.record
            row = {
                "weights": each.name,
                "sha256": each.sha256,
                "precision": each.precision,
                "device": each.device,
                "untrained": str(each.random).lower(),
            }
            networks.add_metric([each.network or ""], row)
        return networks


_DECODERS = "app.decoders.child"
"""A part of the command line of decoder processes and of their parent."""

_MEMBER = "app.processes.member"
"""The word of a command line behind which the name of a member of the server stands."""

_DECODERS_OF, _OTHER = "decoders of ", "other"
"""The begin of the name of decoder processes, and the name of processes that are not known."""


class Processes(Collector):
    """Collector of the processes below `root`, which starts all others of the server.

    Processes of the same name are added up: names have a bound, numbers of processes do not.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._root_name = "server" if root == os.getpid() else "supervisor"
        self._cpu: dict[str, float] = defaultdict(float)

    def collect(self) -> Iterator[Metric]:
        """Read what the processes use, and yield the sums of each name."""
        uses: dict[str, list[Use]] = defaultdict(list)
        names: dict[int, str] = {}
        for use in process_family(self._root):
            # A process whose parent ended during the walk has another parent already.
            parent = names.get(use["ppid"], _OTHER)
            name = self._root_name if use["pid"] == self._root else _name(use, parent)
            names[use["pid"]] = name
            uses[name].append(use)
        yield from _gauges("process", uses.items(), _PROCESS_READINGS)
        yield self._cpu_family(uses)

    def _cpu_family(self, uses: Mapping[str, Sequence[Use]]) -> Metric:
        """Return the CPU time of each name, which begins at 0 again with a new process.

        Decoders come and go: ended decoders are counted by their parent of the same name. A
        decoder that ends during the walk is missing, but the sum does not fall for it: a scraper
        would take a small fall for a new process that has used all of the rest already.
        """
        cpu = CounterMetricFamily("darkroom_process_cpu_seconds", "CPU time.", labels=["process"])
        for name, each in uses.items():
            times = [use["cpu_times"] for use in each]
            found = sum(time.user + time.system for time in times)
            if name.startswith(_DECODERS_OF):
                found += sum(time.children_user + time.children_system for time in times)
            last = self._cpu[name]
            self._cpu[name] = last if found < last < 2 * found else found
            cpu.add_metric([name], self._cpu[name])
        return cpu


def process_family(root: int) -> Iterator[Use]:
    """Yield what process `root` and each of its descendants uses, parents before their children.

    A process that ends meanwhile, or that this user may not read, is left out. `psutil` finds
    children by reading all processes of the machine; the source here is proc(5).
    """
    with suppress(psutil.Error, OSError):  # also without a free descriptor
        yield psutil.Process(root).as_dict(_USE)
        for task in Path(f"/proc/{root}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                for child in (task / "children").read_text().split():
                    yield from process_family(int(child))


def _name(use: Use, parent: str) -> str:
    """Return the name of a process; `parent` is the name of its parent."""
    words = use["cmdline"] or [""]
    if any(_DECODERS in word for word in words):
        return parent if parent.startswith(_DECODERS_OF) else _DECODERS_OF + parent
    if _MEMBER in words[:-1]:
        return str(words[words.index(_MEMBER) + 1])
    return _OTHER


class Gpus(Collector):
    """Collector of the GPUs of the machine, or of those that its container has.

    `nvml` is NVIDIA's library for monitoring (NVML API Reference Guide, "Device Queries"), or its
    binding `pynvml`. No context is created.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._count: int = nvml.nvmlDeviceGetCount()

    def collect(self) -> Iterator[Metric]:
        """Yield a row for each GPU; a GPU without a value has no row."""
        nvml = self._nvml
        info = InfoMetricFamily("darkroom_gpu", "The GPUs.", labels=["gpu"])
        devices = {}
        for number in range(self._count):
            with suppress(nvml.NVMLError):  # this GPU is lost
                device = nvml.nvmlDeviceGetHandleByIndex(number)
                driver, name = nvml.nvmlSystemGetDriverVersion(), nvml.nvmlDeviceGetName(device)
                uuid = nvml.nvmlDeviceGetUUID(device)
                info.add_metric([str(number)], {"uuid": uuid, "name": name, "driver": driver})
                devices[str(number)] = nvml, device
        yield info
        yield from _gauges("gpu", devices.items(), GPU_READINGS, nvml.NVMLError)


def system_collectors(with_gpus: bool) -> Iterator[Collector]:
    """Yield the collector of the server's processes, and with `with_gpus` that of its GPUs.

    The parent of a front end started all processes. Without the binding of NVML, a driver or a GPU
    there are no metrics of GPUs.
    """
    yield Processes(os.getppid() if METRICS_FOLDER in os.environ else os.getpid())
    if with_gpus:
        with suppress(ImportError):
            nvml = import_module("pynvml")
            try:
                nvml.nvmlInit()
                yield Gpus(nvml)
            except nvml.NVMLError as error:
                log.info("there are no metrics of GPUs: %s", error)
