"""Circuit breaker: stop forking processes that end one after the other without an answer.

Ten such ends in a row can mean ten hostile files, which is no reason to refuse the next image, or
that no decoder process can run on this machine now (no memory or process numbers are left, or a
library was replaced). A test picture decides between the two: if a new process decodes it, images
are decoded again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from models.domain.errors import Unavailable

log = logging.getLogger("darkroom.decoders")

DEATHS = 10
"""Processes that ended in a row without an answer before the test picture is decoded."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two tests: the first and the largest value of a pause that doubles."""


class Breaker:
    """Circuit breaker of one pool; `prove` decodes a test picture in a new process, or raises."""

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
        """The reason for which images are refused now, else None."""

    def died(self) -> None:
        """Count a process that ended without an answer."""
        self._deaths += 1

    def lived(self) -> None:
        """Note that a process answered, which resets the count."""
        self._deaths = 0

    async def check(self) -> None:
        """Return if a process can be expected to run; raises Unavailable if not."""
        if self._deaths < DEATHS:
            return
        self._refuse_while_closed()
        async with self._proving:
            if self._deaths < DEATHS:
                return
            self._refuse_while_closed()
            try:
                await self._prove()
            except Exception as error:  # logged, and tried again: the service is protected
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
