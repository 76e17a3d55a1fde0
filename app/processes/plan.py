"""Plan a server of several processes: front ends that share a socket, and workers.

This builds their orders and passes them to the supervisor; each process follows them in
`app.processes.member`.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
from contextlib import ExitStack, closing
from dataclasses import dataclass

from prometheus_client import multiprocess

from app.admission.counters import Counters, checked
from app.connections.listening import BACKLOG, announce, bind, bind_metrics
from app.system.own_folder import own_folder
from app.telemetry.metrics import FOLDER_PREFIX, METRICS_FOLDER
from models.settings import Settings
from models.settings_loading import FIXED, reloaded
from workers.supervision.gpu_discovery import wanted_gpus
from workers.supervision.startup import cores
from workers.supervision.supervisor import Groups, ProcessSpec, Supervisor

log = logging.getLogger("darkroom.tree")

CHANGEABLE = frozenset(Settings.model_fields) - FIXED
"""Settings that SIGHUP changes: processes with the new values replace the old ones."""

MODULE = "app.processes.member"
"""The module that each process runs."""

CORES_PER_WORKER = 2
"""Cores that the worker of a GPU needs: for its event loop, its launch and its collect thread."""

CORES_FOR_TWO = 8
"""A GPU's share of the cores from which it gets a second worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of front ends, GPUs, and workers of each GPU; without GPUs, a worker on the CPU."""

    front_ends: int
    gpus: int
    gpu_workers: int = 1

    @classmethod
    def of(cls, settings: Settings) -> "Plan":
        """Return the plan for the settings; ValueError where it is impossible.

        By default one process does all on a CPU, and one front end a core feeds the GPUs, less
        the cores that their workers keep busy.
        """
        gpus = wanted_gpus(settings.gpus)
        workers = 2 if gpus and cores(settings) >= CORES_FOR_TWO * gpus else 1
        if settings.gpu_workers != "auto":
            workers = int(settings.gpu_workers)
        checked(workers * gpus)
        if settings.front_ends != "auto":
            return cls(int(settings.front_ends), gpus, workers)
        left = cores(settings) - CORES_PER_WORKER * workers * gpus
        return cls(max(2, left) if gpus else 0, gpus, workers)


def run(
    settings: Settings,
    plan: Plan,
    given: socket.socket | None = None,
    *,
    weights: bool = True,
    full_batches: bool = False,
) -> int:
    """Serve with front ends and workers in processes of their own; return the exit code.

    The socket that is `given`, and listens, is served in place of the address of the settings.
    Without `weights` the server only filters. With `full_batches` the scores of an image do not
    depend on the batch that it is part of. SIGHUP starts processes with the present settings,
    networks and weights, SIGUSR2 with the present networks and weights.
    """
    gpus: list[int | None] = [*range(plan.gpus)] * plan.gpu_workers or [None]
    running = settings
    with ExitStack() as stack:
        listening = stack.enter_context(given or bind(settings.host, settings.port))
        sockets = [listening, *map(stack.enter_context, bind_metrics(settings))]
        counters = stack.enter_context(closing(Counters.create(plan.front_ends)))
        folder = stack.enter_context(own_folder(FOLDER_PREFIX))
        environment = {**os.environ, METRICS_FOLDER: folder}
        descriptors = [*(each.fileno() for each in sockets), counters.fd or 0]

        def groups(settings: Settings) -> Groups:
            # Workers with new weights have addresses of their own: each request is computed by the
            # weights that its front end names.
            name = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
            addresses = {f"{name}-{number}": gpu for number, gpu in enumerate(gpus)}
            shown = settings.model_dump(mode="json")
            patience = settings.drain_timeout + 5
            orders = {
                "role": "worker",
                "settings": shown,
                "weights": weights,
                "full_batches": full_batches,
            }
            workers = [
                ProcessSpec(
                    "worker" if gpu is None else f"worker {number} of GPU {gpu}",
                    MODULE,
                    {**orders, "address": address, "gpu": gpu},
                    patience=patience,
                )
                for number, (address, gpu) in enumerate(addresses.items())
            ]
            orders = {
                "role": "front-end",
                "settings": {**shown, "threads": -(-cores(settings) // plan.front_ends)},
                "addresses": [*addresses],
                "socket": listening.fileno(),
                "scraped": sockets[1].fileno() if sockets[1:] else None,
                "counters": counters.fd,
                "front_ends": plan.front_ends,
            }
            front_ends = [
                ProcessSpec(
                    f"front end {number}",
                    MODULE,
                    {**orders, "number": number},
                    descriptors,
                    environment,
                    settings.grace + patience,
                )
                for number in range(plan.front_ends)
            ]
            return [workers, front_ends]

        def renewed(number: signal.Signals) -> Groups:
            nonlocal running
            if number is signal.SIGHUP:
                running, later = reloaded(running, CHANGEABLE)
                if later:
                    log.warning("these settings need a restart: %s", ", ".join(later))
            return groups(running)

        def on_exit(pid: int) -> None:
            """Remove the gauges of a process that ended; its counters remain in the sums."""
            counters.forget(pid)
            multiprocess.mark_process_dead(pid, folder)

        def on_stop() -> None:
            """Close the parent's sockets, or clients would queue unaccepted."""
            for each in sockets:
                each.close()

        def on_ready() -> None:
            listening.listen(BACKLOG)
            announce(running, listening)

        made = Supervisor(groups(settings), on_exit, on_stop, renewed, on_ready)
        return asyncio.run(made.run())
