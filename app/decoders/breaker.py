"""Circuit breaker: stop asking for processes that die one after the other, and find out why.

Ten deaths in a row can mean ten hostile files, which is no reason to refuse the next image, or a
machine on which no decoder can live (no memory, no processes left, a library replaced while it
runs). A picture of our own tells the two apart: if a new process decodes it, all goes on.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from models.domain.errors import Unavailable

log = logging.getLogger("darkroom.decoders")

DEATHS = 10
"""Processes that died in a row, none of them with an answer, before the proof is asked for."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two proofs; doubled each time."""


class Breaker:
    """`prove` decodes a picture of our own in a new process, and raises where that fails."""

    def __init__(
        self, prove: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prove = prove
        self._clock = clock
        self._deaths = 0
        self._pause = FIRST_PAUSE
        self._closed_until = 0.0
        self._proving = asyncio.Lock()
        self.problem: str | None = None
        """Why images are refused now."""

    def died(self) -> None:
        """A process ended without an answer."""
        self._deaths += 1

    def lived(self) -> None:
        """A process answered."""
        self._deaths = 0

    async def check(self) -> None:
        """Return where a process is worth a try; raises Unavailable where none would live."""
        if self._deaths < DEATHS:
            return
        self._refuse_while_closed()
        async with self._proving:
            if self._deaths < DEATHS:
                return
            self._refuse_while_closed()
            try:
                await self._prove()
            except Exception as error:  # whatever is wrong with the machine: said, and tried again
                self._closed_until = self._clock() + self._pause
                self._pause = min(LONGEST_PAUSE, 2 * self._pause)
                self.problem = f"no decoder process works: {error}"
                log.error("%s; trying again in %s s", self.problem, self._pause / 2)
                self._refuse_while_closed()
            self._deaths, self._pause, self.problem = 0, FIRST_PAUSE, None

    def _refuse_while_closed(self) -> None:
        if self._clock() < self._closed_until:
            raise Unavailable(
                "no decoder process works at the moment; send the image again later, "
                "or as a baseline JPEG, which needs none"
            )
