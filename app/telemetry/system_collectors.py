"""Collectors of what the system and the driver of the GPUs report, which takes time."""

from collections.abc import Iterator

from prometheus_client.registry import Collector

from app.telemetry.gpus import gpus
from app.telemetry.processes import Processes, server_root


def system_collectors(with_gpus: bool) -> Iterator[Collector]:
    """Yield the collector of the server's processes, and with `with_gpus` that of its GPUs."""
    yield Processes(server_root())
    if with_gpus and (found := gpus()) is not None:
        yield found
