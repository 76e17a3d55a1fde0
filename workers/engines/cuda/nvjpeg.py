"""nvJPEG by its C API: JPEGs to their planes in device memory.

Python wrappers return only RGB, upsampled in their own way. The hardware backend takes only
baseline JPEGs and does not check them, so `models.codec.jpeg` reads the whole stream first.
https://docs.nvidia.com/cuda/nvjpeg/
"""

import ctypes
import logging
import threading
from typing import Any, Protocol

import numpy as np
import torch
from cuda import pathfinder
from cuda.pathfinder import DynamicLibNotFoundError
from numpy.typing import NDArray

State = ctypes.c_void_p

STEP = 8


class Event(Protocol):
    """Mark of the end of work on a device, as `torch.cuda.Event` does."""

    def query(self) -> bool:
        """Return whether the work has ended."""


class SharedStates:
    """The states by the number of files that each was made for; any thread may call the methods."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._free: dict[int, Event | None] = {}
        self._lock = threading.Lock()

    def add(self, n: int, state: State) -> None:
        """Let batches of up to `n` files take a state from now on."""
        with self._lock:
            self._states[n] = state
            self._free[n] = None

    def take(self, n: int) -> tuple[int, State] | None:
        """Return the smallest free state that `n` files fit into, with its size, or None.

        It belongs to the caller until `give_back`.
        """
        with self._lock:
            for size in sorted(self._free):
                if size >= n and ((after := self._free[size]) is None or after.query()):
                    del self._free[size]
                    return size, self._states[size]
            return None

    def give_back(self, size: int, after: Event | None) -> None:
        """Let further batches take the state of this size once `after` marks the end of
        decoding.
        """
        with self._lock:
            self._free[size] = after


def shared_sizes(max_batch_size: int) -> list[int]:
    """Return the numbers of files below the most that share a state: 1, 2, 4, multiples of 8."""
    multiples = range(STEP, max_batch_size, STEP)
    return [*(few for few in (1, 2, 4) if few < max_batch_size), *multiples]


# The library, and its batched decoder.

log = logging.getLogger("darkroom.cuda")

UNCHANGED = 0
"""The output format that gives the planes as they are stored, however they are subsampled."""

HARDWARE = 3
"""The backend of the decode engines."""

DESTINATION = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])
"""nvjpegImage_t: device addresses of up to four planes, and their pitches in bytes."""


class NvJpegUnfit(RuntimeError):
    """The library belongs to another CUDA major than torch, and must not be used beside it."""


class NvJpegError(RuntimeError):
    """A call of the library failed; `status` is its nvjpegStatus_t."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} failed with status {status}")
        self.status = status


class NvJpeg:
    """The library with a handle of the decode engines, for a single thread at a time.

    Raises NvJpegError where there are no engines, NvJpegUnfit for a library of another CUDA major
    than torch's, and pathfinder's error where there is no library.
    """

    def __init__(self) -> None:
        self._library = _library()
        check_major(library_version(), torch.version.cuda)
        self.handle = ctypes.c_void_p()
        self.call("nvjpegCreateEx", HARDWARE, None, None, 0, ctypes.byref(self.handle))

    def state(self, n: int) -> State:
        """Make a state for batches of `n` files, from any thread; raises NvJpegError."""
        state = ctypes.c_void_p()
        self.call("nvjpegJpegStateCreate", self.handle, ctypes.byref(state))
        self.call("nvjpegDecodeBatchedInitialize", self.handle, state, n, 1, UNCHANGED)
        return state

    def decode(
        self,
        state: State,
        data: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        destinations: NDArray[Any],
        stream: int,
    ) -> None:
        """Start decoding as many files as `state` was made for, by their addresses and `lengths`,
        each to a DESTINATION; raises NvJpegError.
        """
        self.call(
            "nvjpegDecodeBatched",
            self.handle,
            state,
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_void_p(lengths.ctypes.data),
            ctypes.c_void_p(destinations.ctypes.data),
            ctypes.c_void_p(stream),
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; raises NvJpegError."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NvJpegError(name, status)


def hardware_decoder() -> tuple[NvJpeg | None, str | None]:
    """Return the decode engines, or None and perhaps why the service is degraded without them.

    A GPU without decode engines is as good as it can be: front ends decode. A library that is
    missing is a fault of the installation, which costs most of the rate.
    """
    try:
        return NvJpeg(), None
    except NvJpegError as error:
        log.info("JPEGs are decoded on the CPU: %s", error)
        return None, None
    except (NvJpegUnfit, DynamicLibNotFoundError) as error:
        found = str(error).strip().splitlines()[0]
        problem = (
            f"JPEGs are decoded on the CPU, because nvJPEG cannot be used ({found}); "
            "install what requirements-gpu.lock names"
        )
        log.warning("%s", problem)
        return None, problem


def library_version() -> tuple[int, ...]:
    """Return the version of the library; no GPU is needed. Raises pathfinder's error without it."""
    values = [ctypes.c_int() for _ in ("major", "minor", "patch")]
    for number, value in enumerate(values):
        if status := _library().nvjpegGetProperty(number, ctypes.byref(value)):
            raise NvJpegError("nvjpegGetProperty", status)
    return tuple(value.value for value in values)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvjpeg").abs_path)


def check_major(version: tuple[int, ...], cuda: str | None) -> None:
    """Raise NvJpegUnfit unless the library has the major of `cuda`, the version torch is built for.

    Two CUDA majors in a process crash sooner or later.
    """
    wanted = cuda.split(".")[0] if cuda else None
    if wanted != str(version[0]):
        shown = ".".join(map(str, version))
        raise NvJpegUnfit(
            f"nvJPEG {shown} is installed, but torch is built for CUDA {cuda}: "
            f"install the nvJPEG of CUDA {wanted}"
        )


class Decoder:
    """Decode batches in turn, for as long as the process lives.

    A state is made for a number of files: using it for another number takes 1.5 ms, as long as
    decoding 40 photos. So there is a state for each of a few numbers, and a batch between two
    numbers is filled up with its smallest file, which is decoded again to the same place.

    The state for the most files, `most`, is the decoder's own. States for fewer files are shared,
    and a batch holds a shared state until it is decoded.
    """

    def __init__(self, library: NvJpeg, most: int, shared: SharedStates) -> None:
        self._nvjpeg = library
        self._own = most, library.state(most)
        self._shared = shared
        self._held: list[int] = []

    def decode(
        self,
        data: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        destinations: NDArray[Any],
        stream: int,
    ) -> None:
        """Start decoding: addresses and `lengths` of the files, and a DESTINATION for each.

        All files must have the same chroma subsampling, because the engines are five times slower
        with a mixture. A batch of several has a call for each, and `free` is called after the last.
        """
        held = self._shared.take(len(data))
        if held is not None:
            self._held.append(held[0])
        size, state = held or self._own
        missing = size - len(data)
        if missing:
            # The repetitions write the same bytes to the same place, so it does not matter in which
            # order the engines finish.
            again = [*range(len(data)), *[int(lengths.argmin())] * missing]
            data, lengths, destinations = data[again], lengths[again], destinations[again]
        self._nvjpeg.decode(state, data, lengths, destinations, stream)

    def free(self, after: Event | None = None) -> None:
        """Give the shared states back, for use once `after` marks the end of their decoding."""
        while self._held:
            self._shared.give_back(self._held.pop(), after)
