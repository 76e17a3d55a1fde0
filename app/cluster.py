"""A Darkroom on Ray Serve: front ends and workers as deployments of one application.

`darkroom.cluster` derives the deployments from these classes. A Serve configuration file overrides
the options of each deployment by its name; `docker/ray` has one. Ray is imported inside the
functions that use it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from app import main
from app.admission.counters import Counters
from app.main import Executor
from app.telemetry import logs
from app.telemetry.canary import Canary, canary_image, canary_operations
from app.telemetry.metrics import Metrics
from models.malloc import freeze
from models.settings import Settings
from models.usable_cpus import usable_cores
from workers.cluster import Offer, RayBackend, Replica
from workers.supervision.startup import CPU_BATCH, GPU_BATCH, cores, start_worker

FULL_BATCHES = 4
"""Batches of images that a worker's replica has at a time: a batch that is computed, a batch that
follows, and as much again, because the images of several front ends end together. Further images
wait in the front ends, where they still may go to any replica."""

HEALTH_PERIOD = 10.0
HEALTH_TIMEOUT = 60.0
"""Seconds between two checks of a replica, and the seconds that a check may take: under load a
canary waits for the images before it."""

ONE_LOOP = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}
"""Variables for the processes of all replicas: Ray Serve and Darkroom share one event loop there.
By default they have three, and each passage between two costs a call about 0.3 ms. Neither of them
blocks its loop: images are computed, decoded and encoded in other threads and processes."""

AT_A_FRONT_END = 2048
"""Requests that Ray hands to a front end at a time. It is more than admission lets in, so that
admission refuses, at once and with `Retry-After`, and requests do not wait unseen."""


def application(front_ends: type, workers: type, given: dict[str, Any]) -> Any:
    """Return the application; `given` are settings by their names, over those of the environment.

    Raises ValueError for settings that can never work.
    """
    from ray import serve

    settings = Settings.of(given, None)
    shown = settings.model_dump(mode="json")
    common: dict[str, Any] = {
        "graceful_shutdown_timeout_s": settings.drain_timeout + 5,
        "health_check_period_s": HEALTH_PERIOD,
        "health_check_timeout_s": HEALTH_TIMEOUT,
        "logging_config": {"enable_access_log": False},
    }
    loop = {"runtime_env": {"env_vars": ONE_LOOP}}
    deployed: Any = serve.deployment(workers)
    handle = deployed.options(
        **common,
        name="workers",
        max_ongoing_requests=FULL_BATCHES * (settings.max_batch_size or CPU_BATCH),
        ray_actor_options={"num_cpus": settings.threads or 1, **loop},
    ).bind(shown)
    deployed = serve.deployment(serve.ingress()(front_ends))
    return deployed.options(
        **common,
        name="front_ends",
        max_ongoing_requests=AT_A_FRONT_END,
        ray_actor_options={"num_cpus": 1, **loop},
    ).bind(handle, shown)


class FrontEnd:
    """The HTTP application for `settings`, as JSON values; `workers` is the deployment's handle.

    `serve.ingress` derives a class from this one, which runs the application.
    """

    def __init__(self, workers: Any, settings: dict[str, Any]) -> None:
        found = Settings.model_validate(settings)
        logs.configure(found.log_level, found.log_format)
        cpus, _ = reserved()
        # GPUs of this node belong to workers, also those that this process could see.
        here = {"threads": found.threads or cpus, "gpus": "0"}
        self._settings = found.model_copy(update=here)
        self._workers = workers
        self._backend: RayBackend | None = None

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application; its parts start with it."""
        app = main.create_app(self._settings, self._executor)
        freeze()
        return app

    async def check_health(self) -> None:
        """Raise RuntimeError if answers would name weights that the workers have no more.

        Ray Serve then replaces this replica by one that asks the workers anew.
        """
        if self._backend is not None and self._backend.changed:
            raise RuntimeError("the workers have other weights; this front end must start anew")

    async def _executor(
        self, settings: Settings, _metrics: Metrics, _counters: Counters
    ) -> Executor:
        """Connect to the workers, waiting for the first one."""
        found: Offer = await self._workers.describe.remote()
        timeout, identity = settings.drain_timeout, found.identity
        self._backend = backend = RayBackend(self._workers, timeout, identity=identity)

        def watch(set_busy: Callable[[int, int], None]) -> None:
            backend.on_change = lambda: set_busy(*busy_images(backend, found))
            backend.on_change()

        return Executor(backend, lambda: found, watch_busy=watch)


def busy_images(backend: RayBackend, found: Offer) -> tuple[int, int]:
    """Return the images that keep all replicas busy, and the images that fill batches on CPUs.

    A front end cannot see the images of other front ends, so each counts as if it were alone.
    """
    busy = max(1, backend.busy_images)
    return busy, 0 if backend.load().on_gpu else busy * found.max_batch_size


class WorkerReplica(Replica):
    """A replica with the worker that `settings`, as JSON values, describe.

    Without `threads` in the settings it computes with the cores that Ray reserved for it.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        found = Settings.model_validate(settings)
        logs.configure(found.log_level, found.log_format)
        cpus, gpus = reserved()
        found = found.model_copy(update={"threads": found.threads or cpus})
        started = start_worker(found, lambda _batch, _result: None, gpu=0 if gpus else None)
        if started.stands_in:  # Ray starts it again, perhaps on another node
            raise RuntimeError(f"the GPU that Ray reserved cannot be used: {started.degraded}")
        freeze()
        self._drain_timeout = found.drain_timeout
        size = found.max_batch_size or (GPU_BATCH if gpus else CPU_BATCH)
        description = Offer(started.networks, started.degraded, size)
        super().__init__(started.worker, _name(), description, size if gpus else 2 * cores(found))
        operations = canary_operations(started.networks)
        self._canary = Canary(self.backend, operations, canary_image(), found.canary_interval)

    async def check_health(self) -> None:
        """Raise RuntimeError if the device neither computes a canary nor anything else.

        Ray Serve calls this regularly, and replaces a replica that fails several times.
        """
        await self._canary.probe()
        found = self._canary.readiness()
        if not found.ready:
            raise RuntimeError(found.problem)

    async def __del__(self) -> None:
        """Finish what was accepted; Ray Serve calls this when the calls of the replica have ended.

        A replica whose start failed has no worker.
        """
        if hasattr(self, "worker"):
            await asyncio.to_thread(self.worker.stop, self._drain_timeout)


def reserved() -> tuple[int, int]:
    """Return the whole cores, at least one, and the GPUs that Ray reserved for this process."""
    import ray

    context = ray.get_runtime_context()
    cpus = int(context.get_assigned_resources().get("CPU", 1))
    return min(max(1, cpus), usable_cores()), len(ray.get_gpu_ids())


def _name() -> str:
    from ray import serve

    return str(serve.get_replica_context().replica_id.unique_id)
