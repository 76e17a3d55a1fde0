"""A server of several processes: front ends that share one socket, and workers that compute.

Builds their orders and hands them to the supervisor; what each process does is in `app.member`.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import multiprocess

from app.acceptor import Tally
from app.admission.counters import Counters
from app.connections.listening import bind_metrics
from app.metrics import METRICS_FOLDER
from app.metrics_folder import metrics_folder
from models.settings import Settings
from workers.devices import wanted_gpus
from workers.start import cores
from workers.supervisor import Member, Supervisor

BACKLOG = 2048

CORES_PER_WORKER = 2
"""Of a GPU: its event loop, and the threads that launch and collect."""

CORES_FOR_TWO = 8
"""A GPU's share of the cores from which it gets a second worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many front ends, GPUs, and workers for each; without any GPU, one on the CPU."""

    front_ends: int
    gpus: int
    gpu_workers: int = 1

    @classmethod
    def of(cls, settings: Settings) -> "Plan":
        """What the settings ask for; ValueError where it cannot be had.

        By default one process does all on a CPU, and one front end a core feeds the GPUs, less
        the cores that their workers keep busy.
        """
        gpus = wanted_gpus(settings.gpus)
        workers = 2 if gpus and cores(settings) >= CORES_FOR_TWO * gpus else 1
        if settings.gpu_workers != "auto":
            workers = int(settings.gpu_workers)
        if settings.front_ends != "auto":
            return cls(int(settings.front_ends), gpus, workers)
        left = cores(settings) - CORES_PER_WORKER * workers * gpus
        return cls(max(2, left) if gpus else 0, gpus, workers)


def run(settings: Settings, plan: Plan) -> int:
    """Serve with front ends and workers in processes of their own; the exit code."""
    name = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
    gpus: list[int | None] = [*range(plan.gpus)] * plan.gpu_workers or [None]
    addresses = {f"{name}-{number}": gpu for number, gpu in enumerate(gpus)}
    own_threads = -(-cores(settings) // plan.front_ends)
    shared = settings.model_copy(update={"threads": own_threads})
    with (
        _listening(settings) as (listening, scraped),
        closing(Tally.create(plan.front_ends)) as tally,
        closing(Counters.create(plan.front_ends)) as counters,
        metrics_folder() as folder,
    ):
        environment = {**os.environ, METRICS_FOLDER: folder}
        workers = [_worker(settings, *each) for each in addresses.items()]
        orders = {
            "role": "front-end",
            "settings": shared.model_dump(mode="json"),
            "addresses": [*addresses],
            "socket": listening.fileno(),
            "scraped": scraped.fileno() if scraped else None,
            "tally": tally.fd,
            "counters": counters.fd,
            "front_ends": plan.front_ends,
        }
        front_ends = [
            _front_end(shared, {**orders, "number": number}, environment)
            for number in range(plan.front_ends)
        ]
        sockets = [each for each in (listening, scraped) if each]
        return asyncio.run(_supervised([workers, front_ends], folder, sockets, counters))


async def _supervised(
    groups: Sequence[Sequence[Member]],
    folder: str,
    sockets: Sequence[socket.socket],
    counters: Counters,
) -> int:
    """Our own hold on the sockets ends with the serving, or clients would wait for nobody."""

    def close() -> None:
        for each in sockets:
            each.close()

    supervisor = Supervisor(groups, lambda pid: _forget(pid, folder, counters), close)
    return await supervisor.run()


@contextmanager
def _listening(settings: Settings) -> Iterator[tuple[socket.socket, socket.socket | None]]:
    """The main socket, and that of the port for metrics if there is one."""
    with ExitStack() as stack:
        listening = stack.enter_context(_bound(settings.host, settings.port))
        scraped = [stack.enter_context(each) for each in bind_metrics(settings)[:1]]
        yield listening, scraped[0] if scraped else None


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


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
    settings: Settings, orders: dict[str, Any], environment: Mapping[str, str]
) -> Member:
    name = f"front end {orders['number']}"
    passed = (orders["socket"], orders["scraped"], orders["tally"], orders["counters"])
    descriptors = tuple(each for each in passed if each is not None)
    patience = settings.grace + settings.drain_timeout + 5
    return Member(name, "app.member", orders, descriptors, environment, patience)


def _forget(pid: int, folder: str, counters: Counters) -> None:
    """A dead process holds nothing: its gauges count no more, its counters still do."""
    counters.forget(pid)
    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
