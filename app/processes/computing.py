"""Compute for a bulk command: workers in processes of their own, supervised as those of a server.

This is a composition root, as `plan.py` is for a server: it starts the workers of a command, and
the processes that read images for them.
"""

import asyncio
import os
import secrets
from collections.abc import Mapping
from typing import Any

from app.admission.counters import Counters
from app.processes.gc_tuning import freeze
from app.processes.plan import Plan, worker
from models.settings import Settings
from workers.malloc import keep_freed_memory
from workers.supervision.startup import cores
from workers.supervision.supervisor import Child, ProcessSpec, Supervisor

__all__ = ["Child", "Computing", "tune"]


class Computing:
    """The workers of a command, and the processes that read images for them.

    There are as many readers as the plan has front ends. `start_reader` starts each; they share the
    limits of memory as front ends do.
    """

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self._settings, self._readers = settings, plan.front_ends
        self._counters = Counters.create(plan.front_ends)
        name = f"\0darkroom-{os.getpid()}-{secrets.token_hex(8)}"
        gpus: list[int | None] = [*range(plan.gpus)] * plan.gpu_workers or [None]
        addresses = {f"{name}-{number}": gpu for number, gpu in enumerate(gpus)}
        self._addresses = [*addresses]
        members = [worker(settings, *each, full_batches=True) for each in addresses.items()]
        self._supervisor = Supervisor([members], on_exit=self._counters.forget)
        self.ended = asyncio.ensure_future(self._supervisor.run())
        """The exit code of the workers: they end on a signal, or if they can never work."""

    async def start_reader(
        self, module: str, number: int, orders: Mapping[str, Any], channel: int
    ) -> Child:
        """Start a process that reads images; it gets the descriptor `channel` and these orders.

        It is killed if it hangs, as a worker is.
        """
        threads = -(-cores(self._settings) // self._readers)
        shared = self._settings.model_copy(update={"threads": threads})
        counters = self._counters.fd
        assert counters is not None  # it is closed by `aclose`
        given = {
            **orders,
            "settings": shared.model_dump(mode="json"),
            "addresses": self._addresses,
            "counters": counters,
            "readers": self._readers,
            "channel": channel,
        }
        spec = ProcessSpec(f"reader {number}", module, given, (channel, counters), beats=True)
        return await Child.start(spec)

    def forget(self, process: int) -> None:
        """Release what a reader held that has ended."""
        self._counters.forget(process)

    async def aclose(self) -> None:
        """End the workers and wait for their end."""
        self._supervisor.stop()
        await self.ended
        self._counters.close()


def tune() -> None:
    """Set the allocator and the garbage collector of a reader, as of a front end."""
    keep_freed_memory()
    freeze()
