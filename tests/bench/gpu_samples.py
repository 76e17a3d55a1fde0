"""How busy the GPU was meanwhile, as nvidia-smi samples it every 200 ms; nothing without it."""

import shutil
import statistics
import subprocess
from importlib.util import find_spec
from types import TracebackType
from typing import Self

FIELDS = ("utilization.gpu", "utilization.memory", "utilization.jpeg")


class GpuSamples:
    """Samples from the block's start to its end; the means of all GPUs in percent afterwards."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self._fields = _known()
        self._sampler: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._fields:
            self._sampler = subprocess.Popen(
                [*_query(self._fields), "-lms", "200"],
                stdout=subprocess.PIPE,
                text=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sampler is None:
            return
        self._sampler.terminate()
        told, _ = self._sampler.communicate(timeout=10)
        rows = [row.split(",") for row in told.splitlines()]
        rows = [row for row in rows if len(row) == len(self._fields)]
        for number, field in enumerate(self._fields):
            values = [float(row[number]) for row in rows if row[number].strip().isdigit()]
            if values:
                self.means[field.partition(".")[2]] = round(statistics.mean(values), 1)


def describe() -> str | None:
    """Return the first GPU's name, its driver and its memory."""
    return _ask("name,driver_version,memory.total")


def cuda_stack() -> dict[str, str | None] | None:
    """Return the versions of torch, of its CUDA, of CuPy, NVRTC and nvJPEG; None without CuPy."""
    if find_spec("cupy") is None:
        return None
    from workers.engines.cuda.kernels import versions

    return versions()


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
