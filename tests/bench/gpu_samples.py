"""How busy the GPU was meanwhile, as nvidia-smi samples it every 200 ms; nothing without it."""

import shutil
import statistics
import subprocess
from types import TracebackType
from typing import Self

FIELDS = ("utilization.gpu", "utilization.memory", "utilization.jpeg")


class GpuSamples:
    """Samples from the block's start to its end; their means in percent afterwards."""

    def __init__(self) -> None:
        self.means: dict[str, float] = {}
        self._fields = _known()
        self._sampler: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._fields:
            self._sampler = subprocess.Popen(
                [*_query(self._fields), "-lms", "200"], stdout=subprocess.PIPE, text=True
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
        rows = [
            row.split(",") for row in told.splitlines() if row.count(",") + 1 == len(self._fields)
        ]
        for field, column in zip(self._fields, zip(*rows, strict=True), strict=False):
            numbers = [float(x) for x in column if x.strip().isdigit()]
            if numbers:
                self.means[field.partition(".")[2]] = round(statistics.mean(numbers), 1)


def describe() -> str | None:
    """Return the first GPU's name, its driver and its memory."""
    return _ask("name,driver_version,memory.total")


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
