"""A server of several processes: front ends that share one socket, and a worker that computes.

Builds their orders and hands them to the supervisor; what each process does is in `app.member`.
"""

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence

from prometheus_client import multiprocess

from app.metrics import METRICS_FOLDER
from models.settings import Settings
from workers.supervisor import Member, Supervisor

BACKLOG = 2048


def run(settings: Settings) -> int:
    """Serve with `settings.front_ends` front ends until told to stop; the exit code."""
    address = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
    with (
        _listening(settings) as listening,
        tempfile.TemporaryDirectory(prefix="darkroom-metrics-") as folder,
    ):
        environment = {**os.environ, METRICS_FOLDER: folder}
        groups = [
            [_worker(settings, address)],
            [
                _front_end(settings, address, number, listening.fileno(), environment)
                for number in range(settings.front_ends)
            ],
        ]
        return asyncio.run(_supervised(groups, folder, listening))


async def _supervised(
    groups: Sequence[Sequence[Member]], folder: str, listening: socket.socket
) -> int:
    """Our own hold on the socket ends with the serving, or clients would wait for nobody."""
    supervisor = Supervisor(groups, lambda pid: _forget(pid, folder), listening.close)
    return await supervisor.run()


def _listening(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)


def _worker(settings: Settings, address: str) -> Member:
    orders = {"role": "worker", "settings": settings.model_dump(mode="json"), "address": address}
    return Member("worker", "app.member", orders, patience=settings.drain_timeout + 5)


def _front_end(
    settings: Settings, address: str, number: int, descriptor: int, environment: Mapping[str, str]
) -> Member:
    orders = {
        "role": "front-end",
        "settings": share(settings).model_dump(mode="json"),
        "address": address,
        "descriptor": descriptor,
    }
    patience = settings.grace + settings.drain_timeout + 5
    return Member(f"front end {number}", "app.member", orders, (descriptor,), environment, patience)


def share(settings: Settings) -> Settings:
    """What one front end may hold: its part of what the server may, but always one image."""
    n = settings.front_ends
    shared = {
        "max_images_in_flight": max(
            settings.max_images_per_request, -(-settings.max_images_in_flight // n)
        ),
        "max_bytes_in_flight": max(settings.max_body_bytes, -(-settings.max_bytes_in_flight // n)),
        "max_pixels_in_flight": max(settings.max_pixels, -(-settings.max_pixels_in_flight // n)),
        "fetch_concurrency": -(-settings.fetch_concurrency // n),
        "threads": max(1, (settings.threads or len(os.sched_getaffinity(0))) // n),
    }
    return settings.model_copy(update=shared)


def _forget(pid: int, folder: str) -> None:
    """A dead process holds nothing: its gauges count no more, its counters still do."""
    multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
