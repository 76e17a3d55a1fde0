"""Count the GPUs of this machine by asking the driver: no context, no torch, no memory."""

import ctypes
from functools import cache
from uuid import UUID

_UUID = 16
"""Bytes of a GPU's UUID."""


def count_gpus() -> int:
    """Return how many NVIDIA GPUs CUDA_VISIBLE_DEVICES leaves; 0 without a driver."""
    driver = _driver()
    count = ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


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
    driver = _driver() if kind == "cuda" else None
    found = (ctypes.c_ubyte * _UUID)()
    if driver is None or driver.cuDeviceGetUuid(found, int(number)):
        return ""
    return f"GPU-{UUID(bytes=bytes(found))}"


def _driver() -> ctypes.CDLL | None:
    """Return the initialised driver, None where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver
