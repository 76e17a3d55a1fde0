"""Find the GPUs of this machine by asking the driver: no context, no torch, no memory."""

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

_UUID = 16
"""Bytes of a GPU's UUID."""

_MAJOR, _MINOR = 75, 76
"""The attributes of a GPU that are its compute capability (`CUdevice_attribute` of cuda.h)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that CUDA_VISIBLE_DEVICES leaves: its name, memory in bytes, and compute capability."""

    name: str
    memory: int
    capability: tuple[int, int]


def count_gpus() -> int:
    """Return how many NVIDIA GPUs CUDA_VISIBLE_DEVICES leaves; 0 without a driver."""
    driver, problem = _opened()
    count = ctypes.c_int(0)
    if problem or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def describe_gpus() -> list[Gpu]:
    """Return the GPUs that `count_gpus` counts, in order."""
    found = []
    for number in range(count_gpus()):
        (driver, _), name = _opened(), ctypes.create_string_buffer(100)
        memory, major, minor = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
        driver.cuDeviceGetName(name, len(name), number)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), number)
        driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, number)
        driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, number)
        found.append(Gpu(name.value.decode(), memory.value, (major.value, minor.value)))
    return found


def cuda_version() -> str:
    """Return the newest CUDA that the driver can run, as `13.0`; empty without a driver."""
    (driver, problem), version = _opened(), ctypes.c_int()
    if problem or driver.cuDriverGetVersion(ctypes.byref(version)):
        return ""
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def why_no_gpu() -> str:
    """Return why `count_gpus` returns 0."""
    driver, problem = _opened()
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if problem and (driver is None or hidden is None):
        return problem
    return f"CUDA_VISIBLE_DEVICES={hidden} leaves none"


def wanted_gpus(gpus: str) -> int:
    """Return how many GPUs the setting `gpus` asks for; ValueError if there are fewer."""
    found = count_gpus()
    if gpus == "auto":
        return found
    if int(gpus) > found:
        raise ValueError(f"--gpus {gpus}: this machine has {found} that can be used")
    return int(gpus)


@cache
def uuid_of(device: str) -> str:
    """Return the UUID of a GPU by a device name such as `cuda:1`; empty if it is unknown."""
    kind, _, number = device.partition(":")
    driver, problem = _opened()
    found = (ctypes.c_ubyte * _UUID)()
    if kind != "cuda" or problem or driver.cuDeviceGetUuid(found, int(number)):
        return ""
    return f"GPU-{UUID(bytes=bytes(found))}"


def _opened() -> tuple[Any, str]:
    """Return the initialised driver, None where there is none, and why it cannot be used."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "there is no NVIDIA driver: the library libcuda.so.1 is not found"
    code = driver.cuInit(0)
    return driver, f"the NVIDIA driver finds no GPU: cuInit returns error {code}" if code else ""
