"""The compiled kernels, launched on torch's current stream."""

from collections.abc import Sequence
from typing import Any

import cupy
import torch

from workers.kernels import loader


def check_majors() -> None:
    """Two CUDA majors in one process crash sooner or later; RuntimeError says what to install."""
    compiler, _ = cupy.cuda.nvrtc.getVersion()
    if torch.version.cuda is None or compiler != int(torch.version.cuda.split(".")[0]):
        raise RuntimeError(
            f"torch is built for CUDA {torch.version.cuda}, CuPy compiles with CUDA {compiler}: "
            f"install the CuPy of the same major (cupy-cuda12x or cupy-cuda13x)"
        )


class Kernels:
    """All kernels as one module, compiled once and kept on disk by CuPy."""

    def __init__(self) -> None:
        check_majors()
        self._module = cupy.RawModule(code=loader.source(), options=loader.OPTIONS)
        self._functions = {name: self._module.get_function(name) for name in loader.KERNELS}

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Start a kernel on torch's current stream; nothing when there are no blocks."""
        if blocks:
            with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
                self._functions[name]((blocks,), (threads,), tuple(arguments))
