"""Collectors of what the system and the driver of the GPUs report, which takes time."""

import os
from collections.abc import Iterator

from prometheus_client.registry import Collector

from app.telemetry.gpus import gpus
from app.telemetry.metrics import METRICS_FOLDER
from app.telemetry.processes import Processes, server_root
from app.telemetry.spare_workers import SpareWorkers


def system_collectors(with_gpus: bool) -> Iterator[Collector]:
    """Yield the collector of the server's processes, and with `with_gpus` that of its GPUs.

    A server of several processes has one of its spare workers as well.
    """
    yield Processes(server_root())
    if METRICS_FOLDER in os.environ:
        yield SpareWorkers(os.environ[METRICS_FOLDER])
    if with_gpus and (found := gpus()) is not None:
        yield found
