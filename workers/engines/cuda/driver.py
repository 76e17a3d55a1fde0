"""The first use of the CUDA driver by a process, after which it must not be forked."""

import ctypes
import os

_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED (cuda.h)."""


def is_initialised() -> bool:
    """Return whether the driver was initialised; a fork of such a process cannot use a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)
    except OSError:
        return False  # it was not even loaded
    context = ctypes.c_void_p()
    return bool(driver.cuCtxGetCurrent(ctypes.byref(context)) != _NOT_INITIALIZED)


def make_context(device: str) -> None:
    """Make torch's context on a device, which its first use would make; raises RuntimeError."""
    import torch

    torch.zeros(1, device=device)
