"""Count the GPUs of this machine by asking the driver: no context, no torch, no memory."""

import ctypes


def count_gpus() -> int:
    """Return how many NVIDIA GPUs CUDA_VISIBLE_DEVICES leaves; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
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
