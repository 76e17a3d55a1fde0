"""Choose the engine of a command: this process, or several."""

import os
from collections.abc import Awaitable, Callable

from app.bulk.engines import in_process
from app.bulk.engines.engine import Engine
from app.bulk.engines.in_process import Work
from app.bulk.errors import WrongUsage
from app.processes.plan import Plan
from models.settings import Settings

AUTO = "auto"

MOST = 128
"""Most processes that read images."""

MANY = 2000
"""Images from which several processes are worth their start, on a GPU."""


def starter(
    settings: Settings, work: Work, processes: str, total: int
) -> Callable[[], Awaitable[Engine]]:
    """Return what starts the engine for `total` images; WrongUsage for wrong `processes`.

    By default one process does all on a CPU, where the network takes nearly all of the time. On
    GPUs many images are read by as many processes as a server has front ends.
    """
    plan = _plan(settings, processes, total)

    async def start() -> Engine:
        if plan.front_ends < 2:
            return await in_process.start(settings, work)
        from app.bulk.engines import processes

        return await processes.start(settings, work, plan)

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
