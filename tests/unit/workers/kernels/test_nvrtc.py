"""NVRTC compiles the text for every GPU of a release, on a machine without one."""

from collections.abc import Mapping

import pytest
import torch

from app.cli.commands.kernels import DEFAULT
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore
from workers.kernels.loader import modules

pytest.importorskip("cupy", reason="CuPy is not installed")
from workers.engines.cuda.nvrtc import Nvrtc

assert torch.__version__  # importing torch makes its NVRTC known to CuPy


def cubins(architecture: str) -> Mapping[str, bytes]:
    return compiled(modules(), architecture, Nvrtc(), CubinStore(()))


@pytest.mark.slow  # 40 s of CPU time for each
@pytest.mark.parametrize("number", DEFAULT.split(","))
def test_all_kernels_compile_for_every_architecture(number: str) -> None:
    found = cubins(f"sm_{number}")
    for module in modules():
        assert all(name.encode() in found[module.name] for name in module.kernels)
        assert found[module.name][:4] == b"\x7fELF"
