"""Start a worker from settings: load the weights and warm up the engine. It takes seconds.

Torch and CuPy are imported by the engine that is chosen, and only then.
"""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from models.malloc import keep_freed_memory, return_freed_memory
from models.networks.served import ServedNetwork
from models.networks.spec import NetworkSpec
from models.setting_types import cache_folder
from models.settings import Settings
from models.threads import can_lower_priority
from models.usable_cpus import usable_cores
from workers.engines.cpu.engine import CpuEngine, start_filter_threads
from workers.kernels.cubins import CubinStore, folders
from workers.operations import FilterChain
from workers.scheduling.batch import Observer
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Worker

log = logging.getLogger("darkroom.start")

CPU_BATCH = 8
"""The fastest batch size on a CPU: larger batches do not fit into its cache."""

GPU_BATCH = 64
"""Decode engines and network reach 95 % of their best rate, and waits stay short."""

FILL = 0.5
"""Seconds that a batch of a CPU waits for further images where it is computed, and costs as much,
as a full batch."""


class GpuUnusable(Exception):
    """A worker that may not stand in on the CPU cannot use its GPU."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running worker and the networks that it serves, the default first.

    There are no networks where the worker was started only to filter. `degraded` says why it does
    not compute on the device that was asked for, or which part is missing there.
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
    degraded = None
    if gpu is not None:
        try:
            return _on_gpu(settings, on_batch, weights, gpu, full_batches)
        except (ImportError, RuntimeError, AssertionError) as error:  # as torch and CuPy say it
            if not stand_in:
                raise GpuUnusable(f"GPU {gpu} cannot be used ({error})") from error
            log.exception("GPU %d cannot be used", gpu)
            degraded = f"GPU {gpu} cannot be used ({error}); this worker computes on the CPU"
    return _on_cpu(settings, on_batch, weights, full_batches, degraded)


def _on_cpu(
    settings: Settings,
    on_batch: Observer,
    weights: bool,
    full_batches: bool,
    degraded: str | None,
) -> Started:
    """Start a worker on the CPU. Without `weights` torch is not imported, which takes seconds:
    filters do not need it.
    """
    networks: list[Any] = []
    served: list[ServedNetwork] = []
    if weights:
        from workers.engines.cpu.network import CpuNetwork
        from workers.engines.model import State, load_models

        def build(spec: NetworkSpec, state: State) -> CpuNetwork:
            return CpuNetwork(state, settings.precision, spec)

        for each in load_models(settings, "cpu", build):
            served.append(each.served)
            networks += [] if each.network is None else [each.network]
    size = settings.max_batch_size or CPU_BATCH
    engine = CpuEngine(networks, size, cores(settings), full_batches=full_batches)
    return_freed_memory()  # what loading took; the warm-up takes what serving needs
    engine.warm_up()
    # A CPU filters the images of a batch one after the other.
    limits = replace(
        _limits(settings, size), alone=lambda job: isinstance(job.operation, FilterChain)
    )
    if full_batches:
        limits = replace(limits, max_queue_delay=max(limits.max_queue_delay, FILL))
    engines, background = [engine], None
    if settings.data_folder is not None and can_lower_priority():
        start_filter_threads()
        background = CpuEngine(networks, size, cores(settings), background=True)
        engines.append(background)

    def progress() -> float:
        return sum([each.progress() for each in engines])

    worker = Worker(engine, limits, on_batch, progress=progress, background=background)
    worker.start()
    return Started(worker, tuple(served), degraded)


def _on_gpu(
    settings: Settings, on_batch: Observer, weights: bool, gpu: int, full_batches: bool
) -> Started:
    from workers.engines.cuda.engine import CudaEngine
    from workers.engines.cuda.network import GraphedNetwork, make_context
    from workers.engines.model import State, load_models

    # By default this is below the home folder, or named for the user: some ids have neither.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(settings.cache_folder / "inductor"))
    device = f"cuda:{gpu}"
    size = settings.max_batch_size or GPU_BATCH

    def build(spec: NetworkSpec, state: State) -> GraphedNetwork:
        precision, optimize = settings.precision, settings.optimize
        full = full_batches
        return GraphedNetwork(state, precision, spec, size, device, optimize, full_batches=full)

    room = max(settings.max_batch_pixels, settings.max_pixels)
    own = settings.cache_folder
    with suppress(ValueError):  # a user may have no folder of his own
        own = cache_folder()
    cubins = CubinStore(folders(settings.cache_folder, own))
    make_context(device)
    loaded = load_models(settings, device, build) if weights else []
    networks = [each.network for each in loaded if each.network is not None]
    engine = CudaEngine(networks, size, room, device, cubins)
    engine.warm_up()
    worker = Worker(engine, _limits(settings, size), on_batch)
    worker.start()
    return Started(worker, tuple(each.served for each in loaded), engine.degraded)


def _limits(settings: Settings, max_batch_size: int) -> BatchLimits:
    return BatchLimits(
        max_batch_size=max_batch_size,
        max_batch_pixels=settings.max_batch_pixels,
        max_queue_delay=settings.max_queue_delay,
    )
