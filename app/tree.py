"""A server of several processes: front ends that share one port, and workers that compute.

Builds their orders and hands them to the supervisor; what each process does is in `app.member`.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from prometheus_client import multiprocess

from app.metrics import METRICS_FOLDER
from app.metrics_folder import metrics_folder
from models.settings import Settings
from workers.devices import wanted_gpus
from workers.start import cores
from workers.supervisor import Member, Supervisor

BACKLOG = 2048

CORES_PER_WORKER = 2
"""Of a GPU: its event loop, and the threads that launch and collect."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many front ends, and the GPUs that have a worker each; without any, one on the CPU."""

    front_ends: int
    gpus: int

    @classmethod
    def of(cls, settings: Settings) -> "Plan":
        """What the settings ask for; ValueError where it cannot be had.

        By default one process does all on a CPU, and one front end a core feeds the GPUs, less
        the cores that their workers keep busy.
        """
        gpus = wanted_gpus(settings.gpus)
        if settings.front_ends != "auto":
            return cls(int(settings.front_ends), gpus)
        busy = CORES_PER_WORKER * settings.gpu_workers * gpus
        return cls(max(2, cores(settings) - busy) if gpus else 0, gpus)


def run(settings: Settings, plan: Plan) -> int:
    """Serve with front ends and workers in processes of their own; the exit code."""
    name = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
    gpus: list[int | None] = [*range(plan.gpus)] * settings.gpu_workers or [None]
    addresses = {f"{name}-{number}": gpu for number, gpu in enumerate(gpus)}
    shared = share(settings, plan.front_ends)
    with (
        sockets(settings, plan.front_ends) as listening,
        metrics_folder() as folder,
    ):
        environment = {**os.environ, METRICS_FOLDER: folder}
        workers = [_worker(settings, *each) for each in addresses.items()]
        front_ends = [
            _front_end(shared, [*addresses], number, each.fileno(), environment)
            for number, each in enumerate(listening)
        ]
        return asyncio.run(_supervised([workers, front_ends], folder, listening))


async def _supervised(
    groups: Sequence[Sequence[Member]], folder: str, listening: Sequence[socket.socket]
) -> int:
    """Our own hold on the sockets ends with the serving, or clients would wait for nobody."""

    def close() -> None:
        for each in listening:
            each.close()

    return await Supervisor(groups, lambda pid: _forget(pid, folder), close).run()


@contextmanager
def sockets(settings: Settings, n: int) -> Iterator[list[socket.socket]]:
    """A socket for each of `n` front ends, on one port, among which the kernel deals connections.

    Of one socket for all, the process that the kernel wakes first takes nearly all connections:
    119 of 128 in a row, with four front ends. Only the first is bound exclusively, so that a port
    that is taken is an error. What waits in the socket of a process that died, its successor finds.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    host, port = settings.host, settings.port
    with ExitStack() as stack:
        first = stack.enter_context(
            socket.create_server((host, port), family=family, backlog=BACKLOG)
        )
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port = first.getsockname()[1]
        yield [first] + [
            stack.enter_context(
                socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=True)
            )
            for _ in range(n - 1)
        ]


def _worker(settings: Settings, address: str, gpu: int | None) -> Member:
    orders = {
        "role": "worker",
        "settings": settings.model_dump(mode="json"),
        "address": address,
        "gpu": gpu,
    }
    number = address.rsplit("-", 1)[1]
    name = "worker" if gpu is None else f"worker {number} of GPU {gpu}"
    return Member(name, "app.member", orders, patience=settings.drain_timeout + 5)


def _front_end(
    settings: Settings,
    addresses: Sequence[str],
    number: int,
    descriptor: int,
    environment: Mapping[str, str],
) -> Member:
    orders = {
        "role": "front-end",
        "settings": settings.model_dump(mode="json"),
        "addresses": addresses,
        "descriptor": descriptor,
    }
    patience = settings.grace + settings.drain_timeout + 5
    return Member(f"front end {number}", "app.member", orders, (descriptor,), environment, patience)


def share(settings: Settings, n: int) -> Settings:
    """What one of `n` front ends may hold: its part of what the server may, but always an image."""
    shared = {
        "max_images_in_flight": max(
            settings.max_images_per_request, -(-settings.max_images_in_flight // n)
        ),
        "max_bytes_in_flight": max(settings.max_body_bytes, -(-settings.max_bytes_in_flight // n)),
        "max_pixels_in_flight": max(settings.max_pixels, -(-settings.max_pixels_in_flight // n)),
        "fetch_concurrency": -(-settings.fetch_concurrency // n),
        "threads": max(1, cores(settings) // n),
    }
    return settings.model_copy(update=shared)


def _forget(pid: int, folder: str) -> None:
    """A dead process holds nothing: its gauges count no more, its counters still do."""
    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
