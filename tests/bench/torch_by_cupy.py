"""The part of torch that filters, decoding and encoding on a GPU use, made of CuPy.

For machines that have a CUDA stack but no torch built for it: `install` puts modules of these names
in the place of torch. Only memory of bytes, streams and events exist; there are no networks.
"""

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np


class Tensor:
    """Bytes on the device (a CuPy array) or pinned on the host (a NumPy array)."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, part: slice) -> "Tensor":
        return Tensor(self._array[part])

    def data_ptr(self) -> int:
        """Return the address."""
        array = self._array
        return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)

    def copy_(self, other: "Tensor", non_blocking: bool = False) -> None:
        """Copy between host and device on the current stream."""
        stream = cupy.cuda.get_current_stream()
        if isinstance(self._array, np.ndarray):
            other._array.data.copy_to_host_async(self.data_ptr(), len(self), stream)
        else:
            self._array.data.copy_from_host_async(other.data_ptr(), len(self), stream)
        if not non_blocking:
            stream.synchronize()

    def cpu(self) -> "Tensor":
        """Return the bytes on the host."""
        return Tensor(cupy.asnumpy(self._array))

    def numpy(self) -> Any:
        """Return the array itself."""
        return self._array


class Stream:
    """A stream that does not wait for the default stream."""

    def __init__(self, _device: object = None) -> None:
        self.own = cupy.cuda.Stream(non_blocking=True)

    @property
    def cuda_stream(self) -> int:
        """Return the address of the stream."""
        return int(self.own.ptr)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def wait_event(self, event: "Event") -> None:
        """Let later work wait for the event."""
        self.own.wait_event(event.own)

    def synchronize(self) -> None:
        """Wait for all work."""
        self.own.synchronize()


class Event:
    """An event that measures time."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self.own = cupy.cuda.Event(block=blocking, disable_timing=not enable_timing)

    def record(self) -> None:
        """Record on the current stream."""
        self.own.record(cupy.cuda.get_current_stream())

    def synchronize(self) -> None:
        """Wait for the event."""
        self.own.synchronize()

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds until `end`."""
        return float(cupy.cuda.get_elapsed_time(self.own, end.own))


_current: list[Stream] = []


@contextlib.contextmanager
def stream(chosen: Stream) -> Iterator[None]:
    """Make a stream the current one, for CuPy too."""
    _current.append(chosen)
    try:
        with chosen.own:
            yield
    finally:
        _current.pop()


def _current_stream() -> Stream:
    return _current[-1]


def empty(n: int, *, dtype: object, device: object = None, pin_memory: bool = False) -> Tensor:
    """Return memory of `n` bytes, on the device or pinned on the host; no other dtype is made."""
    if dtype is not np.uint8:
        raise TypeError(f"only bytes are made here, no {dtype}")
    if pin_memory:
        pinned = cupy.cuda.alloc_pinned_memory(n)
        return Tensor(np.frombuffer(pinned, np.uint8, n))
    return Tensor(cupy.empty(n, cupy.uint8) if device is not None else np.empty(n, np.uint8))


def _device(name: str) -> Any:
    return types.SimpleNamespace(type=name.partition(":")[0])


def _synchronize(_device: object = None) -> None:
    cupy.cuda.runtime.deviceSynchronize()


def install() -> None:
    """Put these parts in the place of torch and of the engine's tracing, which needs its profiler.

    Raises RuntimeError where torch has been imported: two CUDA majors in one process crash.
    """
    if "torch" in sys.modules:
        raise RuntimeError("torch has been imported already")
    major, minor = cupy.cuda.nvrtc.getVersion()
    cuda = types.SimpleNamespace(
        Event=Event,
        Stream=Stream,
        current_stream=_current_stream,
        device=lambda _device: contextlib.nullcontext(),
        set_device=lambda _device: None,
        stream=stream,
        synchronize=_synchronize,
    )
    parts = {
        "Tensor": Tensor,
        "cuda": cuda,
        "device": _device,
        "empty": empty,
        "uint8": np.uint8,
        "version": types.SimpleNamespace(cuda=f"{major}.{minor}"),
        "__version__": "none",
    }
    torch, tracing = types.ModuleType("torch"), types.ModuleType("workers.engines.tracing")
    vars(torch).update(parts)
    vars(tracing)["stage"] = lambda _name: contextlib.nullcontext()
    sys.modules |= {"torch": torch, "workers.engines.tracing": tracing}
