"""A replica of the deployment that computes: a worker on the GPU or the cores that Ray assigned."""

import asyncio
import logging
from typing import Any

from app.processes.gc_tuning import freeze
from app.telemetry import logs
from app.telemetry.canary import Canary, canary_image, canary_operations
from models.settings import Settings
from models.usable_cpus import usable_cores
from workers.backends.in_process import LocalBackend
from workers.cluster.messages import Description
from workers.cluster.replica import Replica
from workers.ipc.encoded_network import encode_network
from workers.supervision.startup import CPU_BATCH, GPU_BATCH, Started, cores, start_worker

log = logging.getLogger("darkroom.replica")


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
        busy = size if gpus else 2 * cores(found)
        description = _description(started, size)
        super().__init__(started.worker, _name(), description, busy)
        operations = canary_operations(started.networks)
        backend = LocalBackend(started.worker)
        self._canary = Canary(backend, operations, canary_image(), found.canary_interval)

    async def check_health(self) -> None:
        """Raise RuntimeError if the device neither computes a canary nor anything else.

        Ray Serve calls this regularly, and replaces a replica that fails several times.
        """
        await self._canary.probe()
        found = self._canary.readiness()
        if not found.ready:
            raise RuntimeError(found.problem)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the images that wait or are computed, for `darkroom.autoscaling`."""
        load = self.worker.load()
        return {"images": float(load.queued_jobs + load.running_jobs)}

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


def _description(started: Started, max_batch_size: int) -> Description:
    networks = [encode_network(each) for each in started.networks]
    return Description(networks, started.degraded, max_batch_size)
