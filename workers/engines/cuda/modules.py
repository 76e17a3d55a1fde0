"""The compiled kernels, launched on torch's current stream."""

from collections.abc import Sequence
from typing import Any

import cupy
import torch

from workers.kernels import loader


def check_majors() -> None:
    """Raise RuntimeError where torch and CuPy have different CUDA majors.

    Two majors in one process crash sooner or later; the text says which package to install.
    """
    compiler, _ = cupy.cuda.nvrtc.getVersion()
    if torch.version.cuda is None or compiler != int(torch.version.cuda.split(".")[0]):
        raise RuntimeError(
            f"torch is built for CUDA {torch.version.cuda}, CuPy compiles with CUDA {compiler}: "
            f"install the CuPy of the same major (cupy-cuda12x or cupy-cuda13x)"
        )


class Kernels:
    """All kernels as one module, which CuPy compiles once and keeps on disk."""

    def __init__(self) -> None:
        check_majors()
        self._module = cupy.RawModule(code=loader.source(), options=loader.OPTIONS)
        self._functions = {name: self._module.get_function(name) for name in loader.KERNELS}

    def launch(self, name: str, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """Start a kernel on torch's current stream; do nothing when there are no blocks."""
        if blocks:
            with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
                self._functions[name]((blocks,), (threads,), tuple(arguments))
