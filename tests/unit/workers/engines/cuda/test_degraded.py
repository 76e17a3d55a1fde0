"""A server with a GPU but without a fitting nvJPEG works, and reports that it is degraded."""

import logging

import pytest

pytest.importorskip("cupy", reason="CuPy is not installed")
from cuda.pathfinder import DynamicLibNotFoundError

from workers.engines.cuda import nvjpeg
from workers.engines.cuda.nvjpeg import NvJpegError, NvJpegUnfit, check_major


def failing(error: Exception) -> type:
    class Failing:
        def __init__(self) -> None:
            raise error

    return Failing


@pytest.mark.parametrize(
    "error",
    [
        DynamicLibNotFoundError("no libnvjpeg.so.12 was found\nin many folders"),
        NvJpegUnfit("nvJPEG 13.0.1 is installed, but torch is built for CUDA 12.8"),
    ],
)
def test_a_missing_or_unfit_library_is_a_warning_and_a_degradation(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nvjpeg, "NvJpeg", failing(error))
    decoder, degraded = nvjpeg.hardware_decoder()
    assert decoder is None
    assert degraded is not None
    assert str(error).splitlines()[0] in degraded
    assert "requirements-gpu.lock" in degraded
    assert [each.levelno for each in caplog.records] == [logging.WARNING]


def test_a_gpu_without_decode_engines_is_not_degraded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nvjpeg, "NvJpeg", failing(NvJpegError("nvjpegCreateEx", 9)))
    with caplog.at_level(logging.INFO):
        assert nvjpeg.hardware_decoder() == (None, None)
    assert [each.levelno for each in caplog.records] == [logging.INFO]


def test_a_library_of_torch_s_major_is_used_and_of_another_one_refused() -> None:
    check_major((12, 4, 0), "12.8")
    check_major((13, 0, 1), "13.0")
    with pytest.raises(NvJpegUnfit, match=r"nvJPEG 13\.0\.1 .*install the nvJPEG of CUDA 12"):
        check_major((13, 0, 1), "12.8")
    with pytest.raises(NvJpegUnfit, match="torch is built for CUDA None"):
        check_major((12, 4, 0), None)
