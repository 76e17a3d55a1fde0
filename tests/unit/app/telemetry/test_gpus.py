"""Metrics of GPUs, read through a library with the functions of NVML."""

import pytest

from app.telemetry.collectors import Gpus


class NoSuchCounter(Exception):
    """The error of the library for what a GPU does not have."""


class Memory:
    used, total = 3 << 30, 141 << 30


class Rates:
    gpu = 42


class Library:
    """Two GPUs as NVML describes them; the second has no JPEG engines."""

    NVMLError = NoSuchCounter
    NVML_TEMPERATURE_GPU = 0

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"GPU-{index}aaa"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, _handle: str) -> str:
        return "NVIDIA H200"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159"

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Memory:
        return Memory()

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> Rates:
        return Rates()

    def nvmlDeviceGetJpgUtilization(self, handle: str) -> tuple[int, int]:
        if handle == "GPU-1aaa":
            raise NoSuchCounter
        return 30, 167_000

    def nvmlDeviceGetPowerUsage(self, _handle: str) -> int:
        return 350_500

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:
        return 61


def values(visible: str | None) -> dict[tuple[str, str], float]:
    """Return the value of each metric by its name and the number of its GPU."""
    families = list(Gpus(Library(), visible).collect())
    return {(s.name, s.labels["gpu"]): s.value for f in families for s in f.samples}


def test_values_have_base_units_and_a_gpu_lacks_only_what_it_does_not_have() -> None:
    found = values(None)
    assert found["darkroom_gpu_utilization_ratio", "0"] == pytest.approx(0.42)
    assert found["darkroom_gpu_jpeg_utilization_ratio", "0"] == pytest.approx(0.3)
    assert found["darkroom_gpu_power_watts", "1"] == pytest.approx(350.5)
    assert found["darkroom_gpu_memory_used_bytes", "1"] == 3 << 30
    assert ("darkroom_gpu_jpeg_utilization_ratio", "1") not in found


def test_a_lost_gpu_takes_no_metric_of_the_others_away() -> None:
    class OneLost(Library):
        def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
            if uuid == "GPU-0aaa":
                raise NoSuchCounter
            return uuid

    families = list(Gpus(OneLost(), None).collect())
    assert {sample.labels["gpu"] for family in families for sample in family.samples} == {"1"}


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [(None, {"0", "1"}), ("1", {"1"}), ("GPU-0a", {"0"}), ("0, 1", {"0", "1"}), ("", set())],
)
def test_only_visible_gpus_are_read(visible: str | None, numbers: set[str]) -> None:
    assert {gpu for _, gpu in values(visible)} == numbers
