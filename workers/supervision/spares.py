"""Spare processes: they are started and warm, and wait to replace a process that ended."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from workers.supervision.child import Child, ProcessSpec

log = logging.getLogger("darkroom.supervisor")

LOOK = 0.1
"""Seconds between two checks whether all members of a pool can work."""

PAUSES = (1.0, 10.0, 60.0, 300.0)
"""Seconds until a spare that ended before it was ready is started again, each time longer."""


class Spares:
    """Keeper of `counts[pool]` spares for each pool, once all members of the pool can work.

    `members` are those of a pool, `settled` says whether all of them can work. Spares start after
    them, because a start takes the cores that the members need for their own.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        members: Callable[[str], list[ProcessSpec]],
        settled: Callable[[str], bool],
    ) -> None:
        self._members = members
        self._settled = settled
        self._waiting: dict[str, list[Child]] = {pool: [] for pool in counts}
        self._keepers = [
            asyncio.create_task(self._keep(pool)) for pool, n in counts.items() for _ in range(n)
        ]

    def take(self, member: ProcessSpec) -> Child | None:
        """Return a spare that becomes this member, even one that is still starting, or None."""
        waiting = [child for child in self._waiting.get(member.pool or "", ()) if child.alive]
        if not waiting:
            return None
        found = next((child for child in waiting if child.ready.is_set()), waiting[0])
        self._waiting[member.pool or ""].remove(found)
        found.take(member)
        log.info("process %s takes the place of %s", found.pid, member.name)
        return found

    def has(self, pool: str | None) -> bool:
        """Return whether a pool has a spare."""
        return any(child.alive for child in self._waiting.get(pool or "", ()))

    def renew(self) -> None:
        """End all spares, whose orders are old; new ones start when all members can work."""
        for children in self._waiting.values():
            for child in children:
                child.send(signal.SIGTERM)

    async def close(self) -> None:
        """End all spares, and start no more."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        left = [child for children in self._waiting.values() for child in children]
        for child in left:
            child.send(signal.SIGKILL)  # nothing was accepted
        await asyncio.gather(*(child.wait() for child in left))

    async def _keep(self, pool: str) -> None:
        failures = 0
        while True:
            while not self._settled(pool):  # noqa: ASYNC110 (many events of many processes)
                await asyncio.sleep(LOOK)
            try:
                child = await Child.start(self._members(pool)[0], spare=True)
            except OSError as error:  # no memory, no descriptors: it may work later
                log.error("no spare could be started: %s", error)
                await asyncio.sleep(PAUSES[-1])
                continue
            self._waiting[pool].append(child)
            if not await _taken(child):
                self._waiting[pool] = [each for each in self._waiting[pool] if each is not child]
                if not child.ready.is_set():
                    await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                    failures += 1


async def _taken(child: Child) -> bool:
    """Wait until a spare has been taken or has ended; return whether it has been taken."""
    waits = [asyncio.ensure_future(child.taken.wait()), asyncio.ensure_future(child.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    return child.taken.is_set()
