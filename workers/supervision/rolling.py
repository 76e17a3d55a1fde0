"""Replace running processes one by one: the new one can work before the old one leaves."""

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

from workers.supervision.child import Child
from workers.supervision.process_spec import ProcessSpec

log = logging.getLogger("darkroom.supervisor")

START = 300.0
"""Seconds that a new process may take until it can work."""

LEAVE = {"leave": True}
"""The order to take nothing new, to finish what was accepted, and to end."""


class Rolling:
    """Rolling replacement of the processes in `running` and `members`, which are keyed by name.

    `on_exit` gets each old process. A replacement that fails ends the round: the processes that
    have not been replaced continue.
    """

    def __init__(
        self,
        running: dict[str, Child],
        members: dict[str, ProcessSpec],
        on_exit: Callable[[Child], None],
    ) -> None:
        self._running, self._members = running, members
        self._on_exit = on_exit
        self._turn = asyncio.Lock()
        self._rounds: set[asyncio.Task[None]] = set()
        self._leaving: dict[Child, asyncio.Task[None]] = {}

    def begin(self, members: Sequence[ProcessSpec]) -> None:
        """Start to replace `members`; further rounds follow when this one has ended."""
        task = asyncio.create_task(self._round(members))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    def leaving(self, name: str) -> list[Child]:
        """Return the old processes of a member that have not ended."""
        return [child for child in self._leaving if child.name == name]

    async def close(self) -> None:
        """Cancel all rounds, and end the process that one was starting."""
        for task in self._rounds:
            task.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)

    async def ended(self) -> None:
        """Wait for the old processes that are still finishing their work."""
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def _round(self, members: Sequence[ProcessSpec]) -> None:
        async with self._turn:
            log.info("replacing %d processes", len(members))
            for member in members:
                if not await self._replaced(member):
                    log.error("%s could not be replaced; the rest stays as it is", member.name)
                    return
            log.info("all processes have been replaced")

    async def _replaced(self, member: ProcessSpec) -> bool:
        """Replace the process of `member`; return whether the new one works in its place."""
        old = self._running.get(member.name)
        try:
            new = await Child.start(member, replaces=True)
        except OSError as error:  # no memory, no descriptors: a later round may work
            log.error("%s could not be started: %s", member.name, error)
            return False
        try:
            works = await new.until_ready(START)
        except asyncio.CancelledError:
            await self._dropped(new)
            raise
        if not works:
            await self._dropped(new)
            return False
        self._members[member.name] = member
        if old is None or self._running.get(member.name) is not old:  # it died meanwhile
            await self._dropped(new)
            return True
        # From here on the supervisor watches the new process under this name. It is registered
        # before the old one is told to leave, so that an end of the old one is not taken for a
        # failure and restarted.
        self._running[member.name] = new
        old.tell(LEAVE)
        new.take(member)
        leaving = self._leaving[old] = asyncio.create_task(self._left(old, member.patience))
        leaving.add_done_callback(lambda _: self._leaving.pop(old))
        await asyncio.shield(leaving)
        return True

    async def _dropped(self, new: Child) -> None:
        """End a process that replaces no other one."""
        new.send(signal.SIGKILL)
        await new.wait()
        self._on_exit(new)

    async def _left(self, old: Child, patience: float) -> None:
        """Wait for the end of an old process, and kill it if it does not end."""
        try:
            async with asyncio.timeout(patience):
                await old.wait()
        except TimeoutError:
            log.error("%s did not leave within %s s and is killed", old.name, patience)
            old.send(signal.SIGKILL)
            await old.wait()
        self._on_exit(old)
