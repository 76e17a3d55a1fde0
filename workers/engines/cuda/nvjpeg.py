"""nvJPEG by its C API: JPEGs to their planes in device memory, and RGB pixels to baseline JPEGs.

Python wrappers return only RGB, upsampled in their own way. The hardware backend takes only
baseline JPEGs and does not check them, so `models.codec.jpeg` reads the whole stream first.
https://docs.nvidia.com/cuda/nvjpeg/
"""

import ctypes
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from cuda import pathfinder
from cuda.pathfinder import DynamicLibNotFoundError
from numpy.typing import NDArray

from models.domain.image import Pixels, Subsampling

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
DEFAULT = 0

DESTINATION = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])
"""nvjpegImage_t: device addresses of up to four planes, and their pitches in bytes."""


PROPERTIES = 3
"""Major, minor and patch version, as nvjpegGetProperty numbers them from 0."""


class NvJpegUnfit(RuntimeError):
    """The library belongs to another CUDA major than torch, and must not be used beside it."""


class NvJpegError(RuntimeError):
    """A call of the library failed; `status` is its nvjpegStatus_t."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call} failed with status {status}")
        self.status = status


class NvJpeg:
    """The library with a handle, for a single thread at a time.

    `hardware` asks for the decode engines and fails where there are none. Raises NvJpegUnfit for a
    library of another CUDA major than torch's, and pathfinder's error where there is no library.
    """

    def __init__(self, *, hardware: bool = True) -> None:
        self._library = _library()
        check_major(library_version(), torch.version.cuda)
        self.handle = ctypes.c_void_p()
        backend = HARDWARE if hardware else DEFAULT
        self.call("nvjpegCreateEx", backend, None, None, 0, ctypes.byref(self.handle))

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

    def close(self) -> None:
        """Free the handle; all states must be freed before."""
        self.call("nvjpegDestroy", self.handle)

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
    values = [ctypes.c_int() for _ in range(PROPERTIES)]
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


# The encoder. The files differ from those of libjpeg: the same quality, another DCT and other
# Huffman tables.

RGB_INTERLEAVED = 5
"""NVJPEG_INPUT_RGBI."""

_SUBSAMPLINGS = {Subsampling.S444: 0, Subsampling.S422: 1, Subsampling.S420: 2}


class Stream(Protocol):
    """The part of torch.cuda.Stream that the encoder needs."""

    @property
    def cuda_stream(self) -> int:
        """Return the handle of the stream."""

    def synchronize(self) -> Any:
        """Wait for all work that was put on the stream."""


TOGETHER = 16
"""Images that are encoded before the first one is waited for; each needs a state."""

LARGE = 1 << 21
"""Pixels from which on an image is encoded alone: a state keeps memory for its largest image."""


class Placed(NamedTuple):
    """An RGB image without gaps at an address of the device."""

    address: int
    height: int
    width: int


class Encoder:
    """Encode on `stream` and wait for it. A single thread at a time may use it."""

    def __init__(self, library: NvJpeg, stream: Stream) -> None:
        self._library, self._stream = library, stream
        self._states: list[ctypes.c_void_p] = []
        self._parameters = self._made("nvjpegEncoderParamsCreate")

    def encode(
        self, images: Sequence[Placed], quality: int, subsampling: Subsampling
    ) -> list[Pixels | NvJpegError]:
        """Return a file, uint8 (n,), for each image, or the reason why there is none.

        Raises NvJpegError where no image can be encoded.
        """
        factors, call = _SUBSAMPLINGS[subsampling], self._library.call
        call("nvjpegEncoderParamsSetQuality", self._parameters, quality, self._on)
        call("nvjpegEncoderParamsSetSamplingFactors", self._parameters, factors, self._on)
        return [file for group in _groups(images) for file in self._together(group)]

    @property
    def _on(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._stream.cuda_stream)

    def _made(self, name: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._library.call(name, self._library.handle, ctypes.byref(made), self._on)
        return made

    def _together(self, images: Sequence[Placed]) -> list[Pixels | NvJpegError]:
        while len(self._states) < len(images):
            self._states.append(self._made("nvjpegEncoderStateCreate"))
        failed = [self._begin(*each) for each in zip(self._states, images, strict=False)]
        # Two waits: the lengths are known when all images are encoded, and the files are whole when
        # all copies, which run side by side, are done.
        self._stream.synchronize()
        files = [
            error or self._fetch(state) for error, state in zip(failed, self._states, strict=False)
        ]
        self._stream.synchronize()
        return files

    def _begin(self, state: ctypes.c_void_p, image: Placed) -> NvJpegError | None:
        source = np.zeros(1, DESTINATION)
        source["channel"][0, 0], source["pitch"][0, 0] = image.address, 3 * image.width
        try:
            self._library.call(
                "nvjpegEncodeImage",
                self._library.handle,
                state,
                self._parameters,
                ctypes.c_void_p(source.ctypes.data),
                RGB_INTERLEAVED,
                image.width,
                image.height,
                self._on,
            )
        except NvJpegError as error:
            return error
        return None

    def _fetch(self, state: ctypes.c_void_p) -> Pixels | NvJpegError:
        """Return the file of an encoded image; it is whole once the stream was waited for again."""
        length = ctypes.c_size_t()
        try:
            self._retrieve(state, None, length)
            file = np.empty(length.value, np.uint8)
            self._retrieve(state, file.ctypes.data, length)
        except NvJpegError as error:
            return error
        return file

    def _retrieve(
        self, state: ctypes.c_void_p, target: int | None, length: ctypes.c_size_t
    ) -> None:
        """Copy the file to `target`, or only find its length where there is no target."""
        self._library.call(
            "nvjpegEncodeRetrieveBitstream",
            self._library.handle,
            state,
            ctypes.c_void_p(target),
            ctypes.byref(length),
            self._on,
        )


def _groups(images: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
    """Yield the images in order, at most `TOGETHER` at a time, and large images alone."""
    group: list[Placed] = []
    for image in images:
        large = image.height * image.width >= LARGE
        if group and (large or len(group) == TOGETHER):
            yield group
            group = []
        group.append(image)
        if large:
            yield group
            group = []
    if group:
        yield group
