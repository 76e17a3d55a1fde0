"""Where the time of a bulk command goes: threads of each role, batches, and the GPU's engines.

All samples are taken while records are written, so the start of the command is not among them.
"""

import os
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from tests.bench.gpu_samples import GpuSamples
from tests.bench.subject import family

PAUSE = 0.25
"""Seconds between two samples."""

ROLES = {"app.bulk.engines.child": "readers", "app.processes.member": "workers"}
"""The role of a process by its module; the command itself is the first process."""

Threads = dict[tuple[str, int, str], float]
"""CPU seconds by role, process and thread."""


class Roles:
    """Samples the command of process `root` while the block runs; `folder` has its partial file."""

    def __init__(self, root: int, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._ended = threading.Event()
        self._samples: list[tuple[float, int, Threads]] = []
        self._gpu = GpuSamples()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def figures(self, record: float) -> dict[str, Any]:
        """Return the rate, the cores of each role, and the share of time of its busiest thread.

        `record` is the mean size of a record in bytes.
        """
        found: dict[str, Any] = {"gpu_percent": self._gpu.means}
        if len(self._samples) < 4:
            return found
        (began, first, before), (end, last, after) = self._samples[1], self._samples[-2]
        found["images_per_second"] = round((last - first) / record / (end - began), 1)
        used = {key: (after[key] - before[key]) / (end - began) for key in after if key in before}
        for role in sorted({role for role, _, _ in used}):
            shares = [share for (own, _, _), share in used.items() if own == role]
            processes = {process for own, process, _ in used if own == role}
            found[role] = {
                "processes": len(processes),
                "cores": round(sum(shares), 2),
                "busiest_thread": round(max(shares), 2),
            }
        return found

    def _sample(self) -> None:
        while not self._ended.wait(PAUSE):
            if self._written():
                break
        with self._gpu:
            while not self._ended.wait(PAUSE):
                if written := self._written():  # the file is renamed at the end
                    self._samples.append((time.monotonic(), written, _threads(self._root)))

    def _written(self) -> int:
        """Return the bytes of records so far."""
        with suppress(OSError):
            return sum(each.stat().st_size for each in self._folder.glob("*.partial"))
        return 0


def batches(folder: Path) -> dict[str, Any]:
    """Return the mean batch and the reasons of releases, of the metrics in a folder."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    sums: dict[str, float] = defaultdict(float)
    for family_ in registry.collect():
        for each in family_.samples:
            name = each.name.removeprefix("darkroom_")
            if name in ("batch_size_sum", "batch_size_count"):
                sums[name] += each.value
            elif name == "batch_releases_total":
                sums[f"released_{each.labels['reason']}"] += each.value
            elif name == "images_total":
                sums["images_through_the_pipeline"] += each.value
    images, count = sums.pop("batch_size_sum", 0.0), sums.pop("batch_size_count", 0.0)
    return {"mean_batch": round(images / max(count, 1.0), 1), **sums}


def _threads(root: int) -> Threads:
    found: Threads = {}
    for process in family(root):
        with suppress(OSError):  # it has ended
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
            role = next((role for module, role in ROLES.items() if module in words), "others")
            role = "command" if process == root else role
            for task in os.listdir(f"/proc/{process}/task"):
                with suppress(OSError):
                    status = Path(f"/proc/{process}/task/{task}/schedstat").read_text()
                    found[role, process, task] = int(status.split()[0]) / 1e9
    return found
