"""Kernels load from cubins that were compiled in advance, and give the bytes of one module."""

import json
from collections.abc import Sequence
from pathlib import Path

import cupy
import numpy as np
import pytest
import torch

from app.cli.parser import run
from models.domain.image import Image
from models.exit_codes import ExitCode
from tests.emulation.staging import noise
from tests.gpu.equality import MAX_PIXELS, runner
from workers.engines.cuda import kernels as modules
from workers.engines.cuda.engine import CudaEngine
from workers.engines.cuda.nvrtc import Nvrtc
from workers.filters.registry import FILTERS, parse_one
from workers.kernels import loader
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore
from workers.operations import FilterChain

NAMES = sorted(name for name, each in FILTERS.items() if each.passes)


def architecture() -> str:
    """Return the name of this GPU's architecture, such as `sm_90`."""
    torch.cuda.set_device("cuda:0")
    return f"sm_{cupy.cuda.Device().compute_capability}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CubinStore:
    """Return a folder that has every cubin of this GPU."""
    made = CubinStore([tmp_path_factory.mktemp("cubins")])
    compiled(loader.modules(), architecture(), Nvrtc(), made)
    return made


@pytest.fixture(scope="module")
def engines(store: CubinStore) -> list[CudaEngine]:
    """Return an engine that loaded cubins, and one for which CuPy compiled the whole text."""
    from_cubins = CudaEngine([], 8, MAX_PIXELS, "cuda:0", store)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(modules, "_from_cubins", _refused)
        whole = CudaEngine([], 8, MAX_PIXELS, "cuda:0", store)
    return [from_cubins, whole]


def _refused(_store: CubinStore) -> None:
    raise RuntimeError("this engine compiles one module")


def test_a_start_with_all_cubins_compiles_nothing(
    store: CubinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_(_nvrtc: Nvrtc, _text: str, name: str, _options: Sequence[str]) -> bytes:
        raise AssertionError(f"{name} was compiled")

    def fall_back() -> None:
        raise AssertionError("the kernels were compiled as one module")

    monkeypatch.setattr(Nvrtc, "compile", compile_)
    monkeypatch.setattr(modules, "_as_one_module", fall_back)
    modules.Kernels(store)


def test_a_cubin_that_the_driver_refuses_falls_back_to_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def compile_(*_given: object) -> bytes:
        return b"this is no cubin"

    monkeypatch.setattr(Nvrtc, "compile", compile_)
    modules.Kernels(CubinStore([tmp_path]))
    assert "compiled as one module" in caplog.text


@pytest.mark.parametrize("name", NAMES)
def test_cubins_give_the_bytes_of_one_module(engines: list[CudaEngine], name: str) -> None:
    example = {k: v for k, v in FILTERS[name].example.items() if k != "name"}
    chain = FilterChain((parse_one(name, example),))
    images = [Image(noise(97, 131, channels)) for channels in (1, 3, 4)]
    for image in images:
        results = [runner(engine)(chain, [image]).values[0] for engine in engines]
        assert all(isinstance(each, Image) for each in results), results
        first, second = (each.pixels for each in results if isinstance(each, Image))
        assert np.array_equal(first, second)


def test_devices_shows_that_this_gpu_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "--json", "--gpus", "1"]) == ExitCode.OK
    gpu = json.loads(capsys.readouterr().out)["devices"][0]
    assert (gpu["device"], gpu["used"]) == ("GPU 0", True), gpu["unused"]
    assert torch.cuda.get_device_name(0) in gpu["description"]
