"""The versions of the CUDA libraries in use, for logs and for results of benchmarks."""

from importlib import metadata

import torch
from cuda.pathfinder import DynamicLibNotFoundError

from workers.engines.cuda.compiled.nvrtc import Nvrtc
from workers.engines.cuda.nvjpeg.decoder import library_version


def versions() -> dict[str, str | None]:
    """Return the versions of torch, of its CUDA, of CuPy, NVRTC and nvJPEG; no GPU is needed."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cupy": _cupy(),
        "nvrtc": Nvrtc().version.removeprefix("nvrtc "),
        "nvjpeg": _nvjpeg(),
    }


def _cupy() -> str | None:
    """Return the name and the version of the wheel, because CuPy has one for each CUDA major."""
    for name in ("cupy-cuda12x", "cupy-cuda13x"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


def _nvjpeg() -> str | None:
    try:
        return ".".join(map(str, library_version()))
    except DynamicLibNotFoundError:
        return None
