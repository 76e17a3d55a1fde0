"""Compiled kernels, launched on torch's current stream."""

from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import torch

from models.setting_types import cache_folder
from workers.engines.cuda.nvrtc import Nvrtc
from workers.kernels import loader
from workers.kernels.compilation import compiled
from workers.kernels.cubins import CubinStore, folders


def check_majors() -> None:
    """Raise RuntimeError where torch and CuPy have different CUDA majors.

    Two majors in a process crash sooner or later; the text says which package to install.
    """
    compiler, _ = cupy.cuda.nvrtc.getVersion()
    if torch.version.cuda is None or compiler != int(torch.version.cuda.split(".")[0]):
        raise RuntimeError(
            f"torch is built for CUDA {torch.version.cuda}, CuPy compiles with CUDA {compiler}: "
            f"install the CuPy of the same major (cupy-cuda12x or cupy-cuda13x)"
        )


def runs_on(capability: str, built: Sequence[str]) -> bool:
    """Return whether a library built for `built` runs on a compute capability, as `90`.

    A cubin (`sm_80`) runs on its major from its minor on; PTX (`compute_80`) on all later GPUs.
    """
    found = int(capability)
    kinds = [(kind, int(number)) for kind, _, number in (each.partition("_") for each in built)]
    return any(
        number <= found and (kind == "compute" or number // 10 == found // 10)
        for kind, number in kinds
    )


def check_capability(capability: str) -> None:
    """Raise RuntimeError where torch has no kernels for a compute capability, as `90`."""
    if not torch.cuda.is_available():
        raise RuntimeError(
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda} and cannot use the "
            "driver; install a newer driver, or the torch of an older CUDA"
        )
    # An architecture such as sm_90a adds to sm_90, which is built too.
    built = [each for each in torch.cuda.get_arch_list() if each.partition("_")[2].isdecimal()]
    if not runs_on(capability, built):
        raise RuntimeError(
            f"torch {torch.__version__} has kernels for {', '.join(built)}, and this GPU has the "
            f"compute capability {capability[:-1]}.{capability[-1]}; install a torch for it"
        )


class Kernels:
    """All kernels, loaded for the current device from cubins, by default in the user's cache."""

    def __init__(self, cubins: CubinStore | None = None) -> None:
        check_majors()
        check_capability(cupy.cuda.Device().compute_capability)
        self._device = torch.cuda.current_device()
        self._streams: dict[int, Any] = {}
        store = cubins or CubinStore(folders(cache_folder(), cache_folder()))
        self._functions = _from_cubins(store)

    def launch(
        self, name: str, blocks: int, threads: int, arguments: Sequence[Any], stream: Any = None
    ) -> None:
        """Start a kernel on a stream, by default torch's current stream; do nothing when there are
        no blocks.
        """
        if not blocks:
            return
        # Where torch must find the current device itself, this costs more than the launch.
        wanted = stream or torch.cuda.current_stream(self._device)
        of_cupy = self._streams.get(wanted.cuda_stream)
        if of_cupy is None:
            of_cupy = cupy.cuda.Stream.from_external(wanted)
            self._streams[wanted.cuda_stream] = of_cupy
        self._functions[name]((blocks,), (threads,), tuple(arguments), stream=of_cupy)


def _from_cubins(store: CubinStore) -> Mapping[str, Any]:
    """Return a function for each kernel, which keeps its module loaded."""
    compiler = Nvrtc()
    architecture = f"sm_{cupy.cuda.Device().compute_capability}"
    if architecture not in compiler.architectures:
        raise RuntimeError(
            f"{compiler.version} makes no cubins for {architecture}: install a newer NVRTC"
        )
    cubins = compiled(loader.modules(), architecture, compiler, store)
    functions: dict[str, Any] = {}
    for each in loader.modules():
        module = cupy.cuda.Module()
        module.load(cubins[each.name])
        functions |= {name: module.get_function(name) for name in each.kernels}
    return functions
