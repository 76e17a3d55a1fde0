"""In which order the encoder calls its library, with what, and when it waits."""

import ctypes
from typing import Any, cast

import numpy as np
import pytest
import torch

from models.domain.image import Subsampling
from workers.engines.cuda.nvjpeg import (
    DESTINATION,
    RGB_INTERLEAVED,
    Encoder,
    NvJpeg,
    NvJpegError,
    Placed,
)

FILE = bytes(range(200))


class Stream:
    cuda_stream = 77

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def synchronize(self) -> None:
        self._calls.append("wait")


class Library:
    """Notes the calls; hands FILE out as the library does: its length first, then itself."""

    handle = ctypes.c_void_p(5)

    def __init__(self, fails: str | None = None) -> None:
        self.calls: list[str] = []
        self.arguments: dict[str, tuple[Any, ...]] = {}
        self.source: np.ndarray[Any, Any] | None = None
        self._fails = fails

    def call(self, name: str, *arguments: Any) -> None:
        self.calls.append(name.removeprefix("nvjpeg"))
        self.arguments[name] = arguments
        if name == self._fails:
            raise NvJpegError(name, 6)
        if name == "nvjpegEncodeImage":
            lying = ctypes.string_at(arguments[3].value, DESTINATION.itemsize)
            self.source = np.frombuffer(lying, DESTINATION)
        if name == "nvjpegEncodeRetrieveBitstream":
            _, _, target, length, _ = arguments
            length._obj.value = len(FILE)
            if target.value is not None:
                ctypes.memmove(target.value, FILE, len(FILE))


def encoder_of(library: Library) -> Encoder:
    """Return an encoder that calls a fake library on a fake stream."""
    return Encoder(cast(NvJpeg, library), cast(torch.cuda.Stream, Stream(library.calls)))


def test_images_are_encoded_together_waited_for_and_fetched() -> None:
    library = Library()
    encoder = encoder_of(library)
    images = [Placed(1 << 40, 30, 20), Placed(1 << 41, 10, 40)]
    files = encoder.encode(images, 85, Subsampling.S422)
    assert [bytes(file) for file in files if not isinstance(file, NvJpegError)] == [FILE] * 2
    assert library.calls == [
        "EncoderParamsCreate",
        "EncoderParamsSetQuality",
        "EncoderParamsSetSamplingFactors",
        *["EncoderStateCreate"] * 2,
        *["EncodeImage"] * 2,
        "wait",
        *["EncodeRetrieveBitstream"] * 4,
        "wait",
    ]
    assert library.arguments["nvjpegEncoderParamsSetQuality"][1] == 85
    assert library.arguments["nvjpegEncoderParamsSetSamplingFactors"][1] == 1
    assert library.arguments["nvjpegEncodeImage"][4:7] == (RGB_INTERLEAVED, 40, 10)
    assert library.source is not None
    assert library.source["channel"].tolist() == [[1 << 41, 0, 0, 0]]
    assert library.source["pitch"].tolist() == [[120, 0, 0, 0]]
    assert all(arguments[-1].value == 77 for arguments in library.arguments.values())


@pytest.mark.parametrize("function", ["nvjpegEncodeImage", "nvjpegEncodeRetrieveBitstream"])
def test_what_the_library_refuses_is_an_error_and_the_next_image_is_encoded(function: str) -> None:
    library = Library(function)
    encoder = encoder_of(library)
    (failed,) = encoder.encode([Placed(0, 1, 1)], 50, Subsampling.S420)
    assert isinstance(failed, NvJpegError)
    assert str(failed) == f"{function} failed with status 6"
    library._fails = None
    (file,) = encoder.encode([Placed(0, 1, 1)], 50, Subsampling.S444)
    assert not isinstance(file, NvJpegError)
    assert file.tobytes() == FILE


def test_a_state_keeps_room_for_one_large_image_alone() -> None:
    library = Library()
    encoder = encoder_of(library)
    small, large = Placed(0, 100, 100), Placed(0, 2000, 2000)
    encoder.encode([small, small, large, small, large] + [small] * 17, 85, Subsampling.S420)
    text = "".join({"EncodeImage": "e", "wait": "."}.get(call, "") for call in library.calls)
    assert text == "ee..e..e..e.." + 16 * "e" + "..e.."
    assert library.calls.count("EncoderStateCreate") == 16
