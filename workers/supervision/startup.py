"""Start a worker from settings: load the weights and warm up the engine. It takes seconds.

Torch and CuPy are imported by the engine that is chosen, and only then.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.domain.job import Job
from models.networks.served import ServedNetwork
from models.networks.spec import NetworkSpec
from models.setting_types import cache_folder
from models.settings import Settings
from models.thread_priority import can_lower_priority
from models.usable_cpus import usable_cores
from workers.engines.cpu.engine import CpuEngine, CpuSlot, start_filter_threads
from workers.kernels.cubins import CubinStore, folders
from workers.malloc import keep_freed_memory, return_freed_memory
from workers.operations import FilterChain
from workers.scheduling.batch import Observer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

if TYPE_CHECKING:
    from workers.engines.cpu.network import CpuNetwork

log = logging.getLogger("darkroom.start")

CPU_BATCH = 8
"""The fastest batch size on a CPU: larger batches do not fit into its cache."""

GPU_BATCH = 64
"""Decode engines and network reach 95 % of their best rate, and waits stay short."""

FILL = 0.5
"""Seconds that a batch of a CPU waits for further images where it is computed as a full one, and so
costs as much as a full one."""


class GpuUnusable(Exception):
    """A worker that may not stand in on the CPU cannot use its GPU."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running worker and the networks that it serves, the default first.

    There are no networks where the worker was started only to filter. `degraded` says why it does
    not compute on what was asked for, or what is missing there.
    """

    worker: Worker[Any]
    networks: tuple[ServedNetwork, ...] = ()
    degraded: str | None = None

    @property
    def stands_in(self) -> bool:
        """Return whether it computes on the CPU in place of a GPU."""
        return self.degraded is not None and self.worker.load().device == "cpu"


def cores(settings: Settings) -> int:
    """Return the number of cores to compute with."""
    return settings.threads or usable_cores()


def start_worker(
    settings: Settings,
    on_batch: Observer,
    *,
    weights: bool = True,
    gpu: int | None = None,
    full_batches: bool = False,
    stand_in: bool = True,
) -> Started:
    """Start a worker on GPU number `gpu`, or on the CPU; if the GPU cannot be used, on the CPU too.

    Without `stand_in` that raises GpuUnusable instead: loading on the CPU takes seconds.
    With `full_batches` the scores of an image do not depend on the batch that it is part of.
    """
    keep_freed_memory()
    if gpu is None:
        return _on_cpu(settings, on_batch, weights, full_batches=full_batches)
    try:
        return _on_gpu(settings, on_batch, weights, gpu, full_batches)
    except (ImportError, RuntimeError, AssertionError) as error:  # as torch and CuPy say it
        if not stand_in:
            raise GpuUnusable(f"GPU {gpu} cannot be used ({error})") from error
        log.exception("GPU %d cannot be used", gpu)
        degraded = f"GPU {gpu} cannot be used ({error}); this worker computes on the CPU"
        return _on_cpu(settings, on_batch, weights, degraded, full_batches=full_batches)


def _on_cpu(
    settings: Settings,
    on_batch: Observer,
    weights: bool,
    degraded: str | None = None,
    *,
    full_batches: bool = False,
) -> Started:
    """Return an engine for the CPU. Without `weights` torch is not imported, which takes seconds:
    filters do not need it.
    """
    if not weights:
        return Started(_cpu_worker(settings, on_batch, []), degraded=degraded)
    from workers.engines.cpu.network import CpuNetwork
    from workers.engines.model import State, load_models

    def build(spec: NetworkSpec, state: State) -> CpuNetwork:
        return CpuNetwork(state, settings.precision, spec)

    loaded = load_models(settings, "cpu", build)
    networks = [each.network for each in loaded if each.network is not None]
    worker = _cpu_worker(settings, on_batch, networks, full_batches=full_batches)
    return Started(worker, tuple(each.served for each in loaded), degraded)


def _caches(settings: Settings) -> tuple[Path, ...]:
    """Return the folders for what later starts use again: the setting's, then the user's own.

    A user who can have no folder of his own has only the first.
    """
    with suppress(ValueError):
        return settings.cache_folder, cache_folder()
    return (settings.cache_folder,)


def _cpu_worker(
    settings: Settings,
    on_batch: Observer,
    networks: "Sequence[CpuNetwork]",
    *,
    full_batches: bool = False,
) -> Worker[CpuSlot]:
    size = settings.max_batch_size or CPU_BATCH
    engine = CpuEngine(networks, size, cores(settings), full_batches=full_batches)
    return_freed_memory()  # what loading took; the warm-up takes what serving needs
    engine.warm_up()
    limits = replace(_limits(settings, size), alone=_filters)
    if full_batches:
        limits = replace(limits, max_queue_delay=max(limits.max_queue_delay, FILL))
    if settings.data_folder is None or not can_lower_priority():
        return _started(Worker(engine, limits, on_batch, progress=engine.progress))
    start_filter_threads()
    background = CpuEngine(networks, size, cores(settings), background=True)

    def progress() -> float:
        return engine.progress() + background.progress()

    return _started(Worker(engine, limits, on_batch, progress=progress, background=background))


def _on_gpu(
    settings: Settings, on_batch: Observer, weights: bool, gpu: int, full_batches: bool
) -> Started:
    from workers.engines.cuda.engine import CudaEngine
    from workers.engines.cuda.network import GraphedNetwork, make_context
    from workers.engines.model import Loaded, State, load_models

    # By default these are below the home folder, or named for the user: some ids have neither.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(settings.cache_folder / "inductor"))
    os.environ.setdefault("CUPY_CACHE_DIR", str(settings.cache_folder / "cupy"))
    device = f"cuda:{gpu}"
    size = settings.max_batch_size or GPU_BATCH

    def build(spec: NetworkSpec, state: State) -> GraphedNetwork:
        precision, optimize = settings.precision, settings.optimize
        full = full_batches
        return GraphedNetwork(state, precision, spec, size, device, optimize, full_batches=full)

    loaded: list[Loaded[GraphedNetwork]] = []
    room = max(settings.max_batch_pixels, settings.max_pixels)
    cubins = CubinStore(folders(*_caches(settings)))
    make_context(device)
    if weights:
        loaded = load_models(settings, device, build)
    networks = [each.network for each in loaded if each.network is not None]
    engine = CudaEngine(networks, size, room, device, cubins)
    engine.warm_up()
    worker = _started(Worker(engine, _limits(settings, size), on_batch))
    return Started(worker, tuple(each.served for each in loaded), engine.degraded)


def _filters(job: Job) -> bool:
    """Return whether a job filters: a CPU filters the images of a batch one after the other."""
    return isinstance(job.operation, FilterChain)


def _limits(settings: Settings, max_batch_size: int) -> BatchLimits:
    return BatchLimits(
        max_batch_size=max_batch_size,
        max_batch_pixels=settings.max_batch_pixels,
        max_queue_delay=settings.max_queue_delay,
    )


def _started(worker: Worker[Any]) -> Worker[Any]:
    worker.start()
    return worker
