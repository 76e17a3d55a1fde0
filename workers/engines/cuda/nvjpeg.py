"""nvJPEG's batched decoder by its C API: encoded JPEGs in, their planes in device memory out.

Python wrappers hand out RGB only, upsampled their own way. The hardware backend takes baseline
JPEGs alone and takes them on trust: `models.codec.jpeg` looks at the whole stream first.
https://docs.nvidia.com/cuda/nvjpeg/
"""

import ctypes
from typing import Any

import numpy as np
from cuda import pathfinder
from numpy.typing import NDArray

UNCHANGED = 0
"""The output format that gives the planes as they are stored, however they are subsampled."""

HARDWARE = 3
DEFAULT = 0

DESTINATION = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])
"""nvjpegImage_t: device addresses of up to four planes, and their pitches in bytes."""


class NvJpegError(RuntimeError):
    """A call of the library failed; `status` is its nvjpegStatus_t."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} failed with status {status}")
        self.status = status


class NvJpeg:
    """The library with one handle; `hardware` asks for the engines and fails where there are none.

    One thread at a time.
    """

    def __init__(self, *, hardware: bool = True) -> None:
        path = pathfinder.load_nvidia_dynamic_lib("nvjpeg").abs_path
        self._library = ctypes.CDLL(path)
        self._handle = ctypes.c_void_p()
        backend = HARDWARE if hardware else DEFAULT
        self._call("nvjpegCreateEx", backend, None, None, 0, ctypes.byref(self._handle))

    def engines(self) -> int:
        """How many decode engines the device has."""
        engines, cores = ctypes.c_uint(), ctypes.c_uint()
        self._call(
            "nvjpegGetHardwareDecoderInfo",
            self._handle,
            ctypes.byref(engines),
            ctypes.byref(cores),
        )
        return engines.value

    def state(self) -> "DecodeState":
        """What one batch at a time is decoded with."""
        return DecodeState(self)

    def close(self) -> None:
        """Let go of the handle, after all states."""
        self._call("nvjpegDestroy", self._handle)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NvJpegError(name, status)


class DecodeState:
    """Decodes one batch at a time; the host buffers of a batch are its own."""

    def __init__(self, library: NvJpeg) -> None:
        self._nvjpeg = library
        self._state = ctypes.c_void_p()
        library._call("nvjpegJpegStateCreate", library._handle, ctypes.byref(self._state))
        self._batch_size = 0

    def decode(
        self,
        data: NDArray[np.uint64],
        lengths: NDArray[np.uint64],
        destinations: NDArray[Any],
        stream: int,
    ) -> None:
        """Start decoding: addresses and `lengths` of the files, one DESTINATION each.

        All files of a batch must have one chroma subsampling, or the engines slow down fivefold.
        """
        n = len(data)
        call, library = self._nvjpeg._call, self._nvjpeg
        if n != self._batch_size:
            call("nvjpegDecodeBatchedInitialize", library._handle, self._state, n, 1, UNCHANGED)
            self._batch_size = n
        call(
            "nvjpegDecodeBatched",
            library._handle,
            self._state,
            ctypes.c_void_p(data.ctypes.data),
            ctypes.c_void_p(lengths.ctypes.data),
            ctypes.c_void_p(destinations.ctypes.data),
            ctypes.c_void_p(stream),
        )

    def close(self) -> None:
        """Let go of the state."""
        self._nvjpeg._call("nvjpegJpegStateDestroy", self._state)
