"""Spare processes: they are started and warm, and wait to replace a process that ended."""

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping

from workers.supervision.child import PROGRAM, Child
from workers.supervision.forking import ForkServer, ForkSpec
from workers.supervision.process_spec import ProcessSpec

log = logging.getLogger("darkroom.supervisor")

LOOK = 0.1
"""Seconds between two checks whether all members of a pool can work."""

PAUSES = (1.0, 10.0, 60.0, 300.0)
"""Seconds until a spare that ended before it was ready is started again, each time longer."""


class Spares:
    """Keeper of `counts[pool]` spares for each pool, once all members of the pool can work.

    `members` are those of a pool, `settled` says whether all of them can work. Spares start after
    them, because a start takes the cores that the members need for their own. `on_change` gets the
    number of spares of each pool that can work, whenever it may have changed.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        members: Callable[[str], list[ProcessSpec]],
        settled: Callable[[str], bool],
        on_change: Callable[[Mapping[str, int]], None] = lambda _ready: None,
    ) -> None:
        self._counts = counts
        self._members = members
        self._settled = settled
        self._on_change = on_change
        self._starting = asyncio.Lock()
        self._closed = False
        self._servers: dict[str, ForkServer] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._waiting: dict[str, list[Child]] = {pool: [] for pool in counts}
        self._keepers = [
            asyncio.create_task(self._keep(pool)) for pool, n in counts.items() for _ in range(n)
        ]

    def take(self, member: ProcessSpec) -> Child | None:
        """Return a spare that becomes this member, even one that is still starting, or None."""
        waiting = [child for child in self._waiting.get(member.pool or "", ()) if child.works]
        if not waiting:
            return None
        found = next((child for child in waiting if child.ready.is_set()), waiting[0])
        self._waiting[member.pool or ""].remove(found)
        found.take(member)
        log.info("process %s takes the place of %s", found.pid, member.name)
        return found

    def has(self, pool: str | None) -> bool:
        """Return whether a pool has a spare."""
        return any(child.works for child in self._waiting.get(pool or "", ()))

    def server(self, pool: str | None) -> ForkServer | None:
        """Return the process that forks those of a pool, if there is one."""
        return self._servers.get(pool or "")

    async def first_server(self, member: ProcessSpec) -> ForkServer | None:
        """Return the process that forks those of a pool with spares, once it can or cannot fork.

        A member that is forked from it imports nothing of its own, so the start of a server and
        its spares imports once. Raises OSError.
        """
        pool = member.pool or ""
        return await self._serving(pool, member.forks) if self._counts.get(pool) else None

    def failed(self, pool: str | None, child: Child) -> None:
        """Fork no more processes of a pool if a forked one ended before it could work.

        The pool goes on forking if that process was killed: the fork is not the cause then.
        """
        if child.forked and not child.was_killed and (server := self.server(pool)) is not None:
            server.distrust()

    def renew(self) -> None:
        """End all spares, whose orders are old, and the fork servers, whose code may be.

        New ones start when all members can work.
        """
        for children in self._waiting.values():
            for child in children:
                child.send(signal.SIGTERM)
        self._end_servers()

    async def close(self) -> None:
        """End all spares and fork servers, and start no more."""
        self._closed = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        left = [child for children in self._waiting.values() for child in children]
        for child in left:
            child.send(signal.SIGKILL)  # nothing was accepted
        self._end_servers()
        await asyncio.gather(*self._ending, *(child.wait() for child in left))

    async def _keep(self, pool: str) -> None:
        failures = 0
        while True:
            self._on_change(self._ready())
            while not self._settled(pool):  # noqa: ASYNC110 (many events of many processes)
                await asyncio.sleep(LOOK)
            member = self._members(pool)[0]
            try:
                server = await self._serving(pool, member.forks)
                child = await Child.start(member, spare=True, server=server)
            except OSError as error:  # no memory, no descriptors: it may work later
                log.error("no spare could be started: %s", error)
                await asyncio.sleep(PAUSES[-1])
                continue
            self._waiting[pool].append(child)
            await _event_or_end(child.ready, child)
            self._on_change(self._ready())
            await _event_or_end(child.taken, child)
            if not child.taken.is_set():
                self._waiting[pool] = [each for each in self._waiting[pool] if each is not child]
                if not child.ready.is_set():
                    self.failed(pool, child)
                    await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                    failures += 1

    def _ready(self) -> dict[str, int]:
        return {
            pool: sum(each.ready.is_set() and each.works for each in children)
            for pool, children in self._waiting.items()
        }

    async def _serving(self, pool: str, spec: ForkSpec | None) -> ForkServer | None:
        """Return the fork server of a pool; start one if there is none, or again if it died.

        None is started, and none is waited for, once `close` was called.
        """
        if spec is None:
            return None
        async with self._starting:  # members and spares of one pool share a fork server
            server = self._servers.get(pool)
            if server is not None and server.trusted and not server.alive:
                await self._servers.pop(pool).close()
                server = None
            if server is None and not self._closed:
                server = self._servers[pool] = await ForkServer.start(spec, PROGRAM)
            if self._closed:  # perhaps while it was started
                if (late := self._servers.pop(pool, None)) is not None:
                    await late.close()
                return None
        assert server is not None
        await server.settled()
        return server

    def _end_servers(self) -> None:
        ending = [asyncio.create_task(each.close()) for each in self._servers.values()]
        self._ending += ending
        self._servers = {}


async def _event_or_end(event: asyncio.Event, child: Child) -> None:
    """Wait until an event is set or the process has ended."""
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(child.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
