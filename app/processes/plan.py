"""Plan a server of several processes: front ends that share a socket, and workers.

This builds their orders and passes them to the supervisor; what each process does is in
`app.processes.member`.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import multiprocess

from app.admission.counters import Counters, checked
from app.connections.listening import BACKLOG, announce, bind, bind_metrics
from app.processes.connection_balancer import ConnectionCounts
from app.system.process_family import own_folder
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
"""The program of each process."""

CORES_PER_WORKER = 2
"""Cores that the worker of a GPU needs: for its event loop, its launch and its collect thread."""

CORES_FOR_TWO = 8
"""A GPU's share of the cores from which it gets a second worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of front ends, GPUs and workers for each GPU; without GPUs one worker on the CPU."""

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

    The socket that is `given` is served in place of the address of the settings. Without `weights`
    the server only filters. With `full_batches` the scores of an image do not depend on the batch
    that it is part of.
    """
    name = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
    gpus: list[int | None] = [*range(plan.gpus)] * plan.gpu_workers or [None]
    addresses = {f"{name}-{number}": gpu for number, gpu in enumerate(gpus)}
    with (
        _listening(settings, given) as (listening, scraped),
        closing(ConnectionCounts.create(2 * plan.front_ends)) as connections,
        closing(Counters.create(plan.front_ends)) as counters,
        own_folder(FOLDER_PREFIX) as folder,
    ):
        environment = {**os.environ, METRICS_FOLDER: folder}
        orders = {
            "role": "front-end",
            "addresses": [*addresses],
            "socket": listening.fileno(),
            "scraped": scraped.fileno() if scraped else None,
            "connections": connections.fd,
            "counters": counters.fd,
            "front_ends": plan.front_ends,
        }

        def members(settings: Settings) -> Groups:
            workers = [
                worker(settings, *each, weights=weights, full_batches=full_batches)
                for each in addresses.items()
            ]
            own = [{**orders, "number": n} for n in range(plan.front_ends)]
            return [workers, [_front_end(settings, each, environment) for each in own]]

        reload = Reload(settings, members)
        sockets = [each for each in (listening, scraped) if each]
        return asyncio.run(_supervised(members(settings), folder, sockets, counters, reload))


class Reload:
    """Factory of members with the present settings; `running` are the settings in use."""

    def __init__(self, running: Settings, members: Callable[[Settings], Groups]) -> None:
        self._running = running
        self._members = members

    @property
    def settings(self) -> Settings:
        """Return the settings in use."""
        return self._running

    def __call__(self) -> Groups:
        """Return the members for the present settings; ValueError when these are wrong."""
        self._running, later = reloaded(self._running, CHANGEABLE)
        if later:
            log.warning("these settings need a restart: %s", ", ".join(later))
        return self._members(self._running)


async def _supervised(
    groups: Groups,
    folder: str,
    sockets: Sequence[socket.socket],
    counters: Counters,
    reload: Reload,
) -> int:
    """Supervise; the main socket listens once all processes can work for the first time.

    The parent's sockets are closed when draining starts, or clients would queue unaccepted.
    """

    def close() -> None:
        for each in sockets:
            each.close()

    def on_ready() -> None:
        sockets[0].listen(BACKLOG)
        announce(reload.settings, sockets[:1])

    on_exit = partial(_forget, folder=folder, counters=counters)
    return await Supervisor(groups, on_exit, close, reload, on_ready).run()


@contextmanager
def _listening(
    settings: Settings, given: socket.socket | None
) -> Iterator[tuple[socket.socket, socket.socket | None]]:
    """Bind the main socket, which does not listen yet, and that of the port for metrics.

    One that is `given` is the main socket, and listens already.
    """
    with ExitStack() as stack:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listening = stack.enter_context(
            given or bind(settings.host, settings.port, family=family)[0]
        )
        scraped = [stack.enter_context(each) for each in bind_metrics(settings)[:1]]
        yield listening, scraped[0] if scraped else None


def worker(
    settings: Settings,
    address: str,
    gpu: int | None,
    *,
    weights: bool = True,
    full_batches: bool = False,
) -> ProcessSpec:
    """Return the process of a worker that listens at `address`; without `gpu` it has the CPU.

    Without `weights` it only filters. With `full_batches` the scores of an image do not depend on
    the batch that it is part of.
    """
    orders = {
        "role": "worker",
        "settings": settings.model_dump(mode="json"),
        "address": address,
        "gpu": gpu,
        "weights": weights,
        "full_batches": full_batches,
    }
    name = "worker" if gpu is None else f"worker {address.rsplit('-', 1)[1]} of GPU {gpu}"
    return ProcessSpec(name, MODULE, orders, patience=settings.drain_timeout + 5)


def _front_end(
    settings: Settings, orders: dict[str, Any], environment: Mapping[str, str]
) -> ProcessSpec:
    threads = -(-cores(settings) // orders["front_ends"])
    shared = settings.model_copy(update={"threads": threads})
    orders = {**orders, "settings": shared.model_dump(mode="json")}
    name = f"front end {orders['number']}"
    passed = (orders[name] for name in ("socket", "scraped", "connections", "counters"))
    descriptors = tuple(each for each in passed if each is not None)
    patience = settings.grace + settings.drain_timeout + 5
    return ProcessSpec(name, MODULE, orders, descriptors, environment, patience)


def _forget(pid: int, folder: str, counters: Counters) -> None:
    """Remove the gauges of a process that ended; its counters remain in the sums."""
    counters.forget(pid)
    multiprocess.mark_process_dead(pid, folder)
