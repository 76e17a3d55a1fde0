"""nvJPEG's encoder by its C API: RGB pixels in device memory in, a baseline JPEG out.

The files are other ones than libjpeg's: the same quality, another DCT and other Huffman tables.
https://docs.nvidia.com/cuda/nvjpeg/
"""

import ctypes
from typing import Any, Protocol

import numpy as np

from models.image import Pixels, Subsampling
from workers.engines.cuda.nvjpeg import DESTINATION, NvJpeg

RGB_INTERLEAVED = 5
"""NVJPEG_INPUT_RGBI."""

_SUBSAMPLINGS = {Subsampling.S444: 0, Subsampling.S422: 1, Subsampling.S420: 2}


class Stream(Protocol):
    """What is needed of torch.cuda.Stream."""

    @property
    def cuda_stream(self) -> int:
        """Its handle."""

    def synchronize(self) -> Any:
        """Wait for all that was put on it."""


class Encoder:
    """Encodes one image at a time on `stream`, and waits for it. One thread at a time."""

    def __init__(self, library: NvJpeg, stream: Stream) -> None:
        self._library, self._stream = library, stream
        self._state, self._parameters = ctypes.c_void_p(), ctypes.c_void_p()
        for name, made in (
            ("nvjpegEncoderStateCreate", self._state),
            ("nvjpegEncoderParamsCreate", self._parameters),
        ):
            library.call(name, library.handle, ctypes.byref(made), self._on)

    def encode(
        self, address: int, height: int, width: int, quality: int, subsampling: Subsampling
    ) -> Pixels:
        """The file, uint8 (n,), of an image (height, width, 3) that lies whole at `address`.

        Raises NvJpegError.
        """
        call, parameters = self._library.call, self._parameters
        call("nvjpegEncoderParamsSetQuality", parameters, quality, self._on)
        factors = _SUBSAMPLINGS[subsampling]
        call("nvjpegEncoderParamsSetSamplingFactors", parameters, factors, self._on)
        source = np.zeros(1, DESTINATION)
        source["channel"][0, 0], source["pitch"][0, 0] = address, 3 * width
        call(
            "nvjpegEncodeImage",
            self._library.handle,
            self._state,
            parameters,
            ctypes.c_void_p(source.ctypes.data),
            RGB_INTERLEAVED,
            width,
            height,
            self._on,
        )
        length = ctypes.c_size_t()
        self._retrieve(None, length)
        file = np.empty(length.value, np.uint8)
        self._retrieve(file.ctypes.data, length)
        return file[: length.value]

    def close(self) -> None:
        """Let go of the state; the handle is the library's."""
        self._library.call("nvjpegEncoderParamsDestroy", self._parameters)
        self._library.call("nvjpegEncoderStateDestroy", self._state)

    @property
    def _on(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._stream.cuda_stream)

    def _retrieve(self, target: int | None, length: ctypes.c_size_t) -> None:
        """The length alone where there is no target."""
        self._library.call(
            "nvjpegEncodeRetrieveBitstream",
            self._library.handle,
            self._state,
            ctypes.c_void_p(target),
            ctypes.byref(length),
            self._on,
        )
        self._stream.synchronize()
