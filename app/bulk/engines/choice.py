"""Choose the engine of a command: this process, several processes, servers, or a Ray cluster."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.bulk.engines import in_process
from app.bulk.engines.engine import Engine
from app.bulk.engines.filtering import Filtering
from app.bulk.engines.work import Classification
from app.bulk.errors import WrongUsage
from app.bulk.sources import contents
from app.processes.plan import Plan
from models.settings import Settings
from models.settings_loading import API_KEY

AUTO = "auto"

MOST = 128
"""Most processes that read images."""

MANY = 2000
"""Images from which several processes are worth their start, on a GPU."""


@dataclass(frozen=True, slots=True)
class How:
    """The flags that choose an engine: a number of `processes`, the URLs of `servers`, or `ray`.

    `ray` is the address of a Ray cluster. `ray_cpus` and `ray_shared` are those of `OnRay`.
    """

    processes: str = AUTO
    servers: Sequence[str] = ()
    ray: str | None = None
    ray_cpus: int = 0
    ray_shared: bool = False


def starter(
    settings: Settings, work: Classification | Filtering, how: How, total: int
) -> Callable[[], Awaitable[Engine]]:
    """Return what starts the engine for `total` images; WrongUsage for wrong flags.

    By default one process does all on a CPU, where the network takes nearly all of the time. On
    GPUs many images are read by as many processes as a server has front ends.
    """
    for server in how.servers:
        if not contents.is_url(server):
            raise WrongUsage(f"--server: {server!r} is no URL, as http://localhost:8000")
    if how.ray is not None:
        return _on_ray(settings, work, how)
    plan = Plan(0, 0) if how.servers else _plan(settings, how.processes, total)

    async def start() -> Engine:
        if how.servers:
            from app.bulk.engines import remote, remote_requests

            asked = remote_requests.remote(work)
            key = os.environ.get(API_KEY)
            return await remote.start(how.servers, asked, key, settings.max_image_bytes)
        if plan.front_ends < 2:
            return await in_process.start(settings, work)
        from app.bulk.engines import processes

        return await processes.start(settings, work, plan)

    return start


def _on_ray(
    settings: Settings, work: Classification | Filtering, how: How
) -> Callable[[], Awaitable[Engine]]:
    if how.servers or how.processes != AUTO:
        raise WrongUsage("--ray: it cannot be combined with --server or --processes; leave it out")
    if how.ray_cpus < 0:
        raise WrongUsage(f"--ray-cpus: 0 or more (given: {how.ray_cpus})")
    from app.bulk.engines.cluster import connection, engine

    on_ray = engine.OnRay(how.ray or "", how.ray_cpus, how.ray_shared)
    connection.check_address(on_ray.address)

    async def start() -> Engine:
        return await engine.start(settings, work, on_ray)

    return start


def _plan(settings: Settings, processes: str, total: int) -> Plan:
    try:
        if processes == AUTO:
            plan = Plan.of(settings.model_copy(update={"front_ends": "auto"}))
            return plan if plan.gpus and total >= MANY else Plan(0, plan.gpus)
        if not processes.isdecimal() or not 1 <= int(processes) <= MOST:
            raise WrongUsage(f"--processes: auto or 1 to {MOST} (given: {processes!r})")
        plan = Plan.of(settings.model_copy(update={"front_ends": processes}))
    except ValueError as error:
        raise WrongUsage(str(error)) from None
    if plan.front_ends > 1 and not hasattr(os, "memfd_create"):
        raise WrongUsage("--processes: several need memory files, which only Linux has")
    return plan
