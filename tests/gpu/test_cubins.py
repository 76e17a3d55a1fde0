"""Kernels load from cubins that were compiled in advance."""

import json
from collections.abc import Sequence

import cupy
import pytest
import torch

from app.cli.parser import run
from models.exit_codes import ExitCode
from workers.engines.cuda import kernels as modules
from workers.engines.cuda.nvrtc import Nvrtc
from workers.kernels import loader
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore


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


def test_a_start_with_all_cubins_compiles_nothing(
    store: CubinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_(_nvrtc: Nvrtc, _text: str, name: str, _options: Sequence[str]) -> bytes:
        raise AssertionError(f"{name} was compiled")

    monkeypatch.setattr(Nvrtc, "compile", compile_)
    modules.Kernels(store)


def test_devices_shows_that_this_gpu_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["devices", "--json", "--gpus", "1"]) == ExitCode.OK
    gpu = json.loads(capsys.readouterr().out)["devices"][0]
    assert (gpu["device"], gpu["used"]) == ("GPU 0", True), gpu["unused"]
    assert torch.cuda.get_device_name(0) in gpu["description"]
