"""Metrics of GPUs, read through a library with the functions of NVML."""

from types import SimpleNamespace

import pytest

from app.telemetry.collectors import Gpus


class NoSuchCounter(Exception):
    """The error of the library for what a GPU does not have."""


class Library:
    """Two GPUs as NVML describes them; the second has no JPEG engines."""

    NVMLError, NVML_TEMPERATURE_GPU = NoSuchCounter, 0
    nvmlDeviceGetCount = staticmethod(lambda: 2)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: f"GPU-{index}aaa")
    nvmlDeviceGetUUID = staticmethod(lambda handle: handle)
    nvmlDeviceGetName = staticmethod(lambda _: "NVIDIA H200")
    nvmlSystemGetDriverVersion = staticmethod(lambda: "580.159")
    nvmlDeviceGetMemoryInfo = staticmethod(lambda _: SimpleNamespace(used=3 << 30, total=141 << 30))
    nvmlDeviceGetUtilizationRates = staticmethod(lambda _: SimpleNamespace(gpu=42))
    nvmlDeviceGetPowerUsage = staticmethod(lambda _: 350_500)
    nvmlDeviceGetTemperature = staticmethod(lambda _handle, _sensor: 61)

    @staticmethod
    def nvmlDeviceGetJpgUtilization(handle: str) -> tuple[int, int]:
        if handle == "GPU-1aaa":
            raise NoSuchCounter
        return 30, 167_000


def values(library: object = Library) -> dict[tuple[str, str], float]:
    """Return the value of each metric by its name and the number of its GPU."""
    families = list(Gpus(library).collect())
    return {(s.name, s.labels["gpu"]): s.value for f in families for s in f.samples}


def test_values_have_base_units_and_a_gpu_lacks_only_what_it_does_not_have() -> None:
    found = values()
    assert found["darkroom_gpu_utilization_ratio", "0"] == pytest.approx(0.42)
    assert found["darkroom_gpu_jpeg_utilization_ratio", "0"] == pytest.approx(0.3)
    assert found["darkroom_gpu_power_watts", "1"] == pytest.approx(350.5)
    assert found["darkroom_gpu_memory_used_bytes", "1"] == 3 << 30
    assert ("darkroom_gpu_jpeg_utilization_ratio", "1") not in found


def test_a_lost_gpu_takes_no_metric_of_the_others_away() -> None:
    class OneLost(Library):
        @staticmethod
        def nvmlDeviceGetUUID(handle: str) -> str:
            if handle == "GPU-0aaa":
                raise NoSuchCounter
            return handle

    assert {gpu for _, gpu in values(OneLost)} == {"1"}
