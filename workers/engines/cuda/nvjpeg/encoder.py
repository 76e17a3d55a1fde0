"""nvJPEG's encoder by its C API: from RGB pixels in device memory to a baseline JPEG.

The files differ from those of libjpeg: the same quality, another DCT and other Huffman tables.
https://docs.nvidia.com/cuda/nvjpeg/
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from models.domain.image import Pixels, Subsampling
from workers.engines.cuda.nvjpeg.decoder import DESTINATION, NvJpeg, NvJpegError

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
    """Encode on `stream` and wait for it. One thread at a time may use it."""

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
    """Yield the images in order, at most `TOGETHER` at a time, and large ones alone."""
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
