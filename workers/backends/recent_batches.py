"""Collect the last batches of all workers of a server."""

import asyncio
from collections.abc import Sequence

from models.domain.batch_record import BatchRecord
from workers.ipc.worker_client import WorkerConnection

PATIENCE = 2.0
"""Seconds in which a worker must answer; one that does not is left out."""


async def recent_batches(links: Sequence[WorkerConnection], n: int) -> list[BatchRecord]:
    """Return the last `n` batches of all workers together, the newest first."""
    lines = [link.line for link in links if link.line is not None]
    asked = [asyncio.ensure_future(line.batches(n)) for line in lines]
    if not asked:
        return []
    answered, silent = await asyncio.wait(asked, timeout=PATIENCE)
    for each in silent:
        each.cancel()
    return newest([record for each in answered for record in each.result()], n)


def newest(found: Sequence[BatchRecord], n: int) -> list[BatchRecord]:
    """Return the `n` newest batches, the newest first."""
    return sorted(found, key=lambda each: each.released_at, reverse=True)[:n]
