"""Collect metrics of the GPUs by NVML, NVIDIA's library for monitoring. No context is created.

Source: NVML API Reference Guide, "Device Queries". The Python binding is `nvidia-ml-py`; without
it, or without a driver, there are no such metrics.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

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
