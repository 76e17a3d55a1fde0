"""From settings to a started worker: weights loaded, engine warmed up. Takes seconds.

Torch and CuPy are imported by the engine that is chosen, and only then.
"""

import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from models.api.schemas import ModelRecord
from models.domain.job import Job
from models.labels import LabelSet
from models.settings import Settings
from models.weights import RESNET18_PREPROCESSING
from workers.engines.cpu.engine import CpuEngine, CpuSlot
from workers.operations import FilterChain
from workers.scheduling.batcher import BatchLimits
from workers.scheduling.worker import Observer, Worker
from workers.supervision.malloc import keep_freed_memory

if TYPE_CHECKING:
    from workers.engines.resnet18 import ResNet18

log = logging.getLogger("darkroom.start")

CPU_BATCH = 8
"""The fastest on a CPU: larger batches leave its cache."""

GPU_BATCH = 64
"""Decode engines and network are at 95 % of their best rate, and nobody waits long."""


@dataclass(frozen=True, slots=True)
class Started:
    """A running worker, what it classifies with, or why with nothing.

    `degraded`: why it does not compute on what was asked for.
    """

    worker: Worker[Any]
    record: ModelRecord | None
    labels: LabelSet | None
    problem: str | None
    degraded: str | None = None


def cores(settings: Settings) -> int:
    """Cores to compute with."""
    return settings.threads or len(os.sched_getaffinity(0))


def start_worker(
    settings: Settings, on_batch: Observer, *, weights: bool = True, gpu: int | None = None
) -> Started:
    """A worker on GPU number `gpu`, or on the CPU; if the GPU cannot be used, on the CPU too."""
    keep_freed_memory()
    if gpu is None:
        return _on_cpu(settings, on_batch, weights)
    try:
        return _on_gpu(settings, on_batch, weights, gpu)
    except (ImportError, RuntimeError, AssertionError) as error:  # as torch and CuPy say it
        log.exception("GPU %d cannot be used", gpu)
        degraded = f"GPU {gpu} cannot be used ({error}); this worker computes on the CPU"
        return _on_cpu(settings, on_batch, weights, degraded)


def _on_cpu(
    settings: Settings, on_batch: Observer, weights: bool, degraded: str | None = None
) -> Started:
    """Without `weights` torch is not imported, which takes seconds: filters do not need it."""
    if not weights:
        return Started(_cpu_worker(settings, on_batch, None), None, None, None, degraded)
    from workers.engines.model import load_model
    from workers.engines.resnet18 import ResNet18

    spec = RESNET18_PREPROCESSING
    loaded = load_model(settings, "cpu", lambda s: ResNet18(s, settings.precision, spec))
    worker = _cpu_worker(settings, on_batch, loaded.network)
    return Started(worker, loaded.record, loaded.labels, loaded.problem, degraded)


def _cpu_worker(
    settings: Settings, on_batch: Observer, network: "ResNet18 | None"
) -> Worker[CpuSlot]:
    size = settings.max_batch_size or CPU_BATCH
    engine = CpuEngine(network, size, cores(settings))
    engine.warm_up()
    limits = replace(_limits(settings, size), alone=_filters)
    return _started(Worker(engine, limits, on_batch, progress=engine.progress))


def _on_gpu(settings: Settings, on_batch: Observer, weights: bool, gpu: int) -> Started:
    from workers.engines.cuda.engine import CudaEngine
    from workers.engines.cuda.network import GraphedResNet18
    from workers.engines.model import Loaded, State, load_model

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(settings.cache_folder / "inductor"))
    device = f"cuda:{gpu}"
    size = settings.max_batch_size or GPU_BATCH

    def build(state: State) -> GraphedResNet18:
        spec, optimize = RESNET18_PREPROCESSING, settings.optimize
        return GraphedResNet18(state, settings.precision, spec, size, device, optimize)

    loaded: Loaded[GraphedResNet18] = Loaded()
    if weights:
        loaded = load_model(settings, device, build)
    room = max(settings.max_batch_pixels, settings.max_pixels)
    engine = CudaEngine(loaded.network, size, room, device)
    engine.warm_up()
    worker = _started(Worker(engine, _limits(settings, size), on_batch))
    return Started(worker, loaded.record, loaded.labels, loaded.problem)


def _filters(job: Job) -> bool:
    """A CPU filters one image after the other, whoever rides with it."""
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
