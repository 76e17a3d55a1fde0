"""How busy the GPU was meanwhile, as nvidia-smi samples it every 200 ms; nothing without it."""

import shutil
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec

FIELDS = ("utilization.gpu", "utilization.memory", "utilization.jpeg")


@contextmanager
def sampled() -> Iterator[dict[str, float]]:
    """Sample while the block runs; yield what has the means of all GPUs in percent after it."""
    means: dict[str, float] = {}
    if not (fields := _known()):
        yield means
        return
    words = [*_query(fields), "-lms", "200"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as sampler:
        try:
            yield means
        finally:
            sampler.terminate()
            told, _ = sampler.communicate(timeout=10)
    rows = [row.split(",") for row in told.splitlines()]
    rows = [row for row in rows if len(row) == len(fields)]
    for number, field in enumerate(fields):
        values = [float(row[number]) for row in rows if row[number].strip().isdigit()]
        if values:
            means[field.partition(".")[2]] = round(statistics.mean(values), 1)


def describe() -> str | None:
    """Return the first GPU's name, its driver and its memory."""
    return _ask("name,driver_version,memory.total")


def cuda_stack() -> dict[str, str | None] | None:
    """Return the versions of torch, of its CUDA, of CuPy, NVRTC and nvJPEG; None without CuPy."""
    if find_spec("cupy") is None:
        return None
    import cupy
    import torch
    from cuda.pathfinder import DynamicLibNotFoundError

    from workers.engines.cuda.nvjpeg import library_version
    from workers.engines.cuda.nvrtc import Nvrtc

    nvrtc = Nvrtc().version.removeprefix("nvrtc ")
    nvjpeg = None
    with suppress(DynamicLibNotFoundError):
        nvjpeg = ".".join(map(str, library_version()))
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cupy": f"cupy-cuda{nvrtc.partition('.')[0]}x {cupy.__version__}",
        "nvrtc": nvrtc,
        "nvjpeg": nvjpeg,
    }


def _known() -> tuple[str, ...]:
    """Return the fields that this nvidia-smi has; older ones lack the JPEG engines."""
    return next((f for f in (FIELDS, FIELDS[:2]) if _ask(",".join(f)) is not None), ())


def _ask(fields: str) -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    told = subprocess.run(_query(fields.split(",")), capture_output=True, text=True, timeout=30)
    return None if told.returncode else told.stdout.strip().partition("\n")[0]


def _query(fields: tuple[str, ...] | list[str]) -> list[str]:
    return ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
