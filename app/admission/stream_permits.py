"""Permits for the images of a stream, one at a time: a stream waits where a request is refused.

While it waits nothing more is read from the client, so the refusal of one image becomes flow
control for all. Only an image that waits longer than its deadline allows is refused.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from app.admission.permits import Admission, Permit
from models.domain.alarms import alarms, interrupted
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded, RateLimited

LONGEST_PAUSE = 1.0
"""Seconds after which a stream asks again at the latest."""

SHORTEST_PAUSE = 0.05
"""Seconds before a stream asks again."""

T = TypeVar("T")


class StreamPermits:
    """Gives permits to the images of one client's stream, each with a deadline of its own.

    Each image has `seconds` from its permit on, and counts as `parts` images. The first image is
    not charged against the rate: the request was.
    """

    def __init__(
        self,
        admission: Admission,
        client: str,
        seconds: float,
        parts: int = 1,
    ) -> None:
        self._admission = admission
        self.client = client
        self._seconds = seconds
        self._parts = parts
        self._rated = True

    async def enter(self) -> Permit:
        """Return a permit for the next image, which may still have to come.

        Raises Overloaded and RateLimited after the time of an image, and Draining.
        """
        if not self._rated:
            await self._patiently(partial(self._admission.charge_rate, self.client, 1))
        self._rated = True  # also if no permit is given: waiting for one charges nothing more
        permit = await self._patiently(self._entered)
        self._rated = False
        return permit

    async def arrives(self, permit: Permit, n_bytes: int, announced: int = 0) -> None:
        """Count bytes of an image that has not arrived whole; raises Overloaded and TooLarge."""
        permit.size += n_bytes
        await self._patiently(partial(permit.charge, announced))

    async def complete(self, permit: Permit, n_bytes: int) -> None:
        """Admit an image of `n_bytes` that is complete, and begin its time.

        Raises Overloaded and TooLarge.
        """
        await self._patiently(partial(permit.complete, 0, n_bytes, self._parts))
        permit.deadline = self._deadline()
        await self._patiently(partial(permit.expect, 1))
        permit.deadline = self._deadline()

    def _entered(self) -> Permit:
        return self._admission.enter(self.client, self._deadline(), rated=True)

    def _deadline(self) -> Deadline:
        return Deadline.after(self._seconds, self._admission.clock())

    async def _patiently(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` returns; repeat it while admission refuses it. Raises Draining."""
        end = time.monotonic() + self._seconds
        while True:
            try:
                return attempt()
            except (Overloaded, RateLimited) as error:
                left = end - time.monotonic()
                if left <= 0:
                    raise
                pause = max(SHORTEST_PAUSE, min(error.retry_after, LONGEST_PAUSE))
            await asyncio.sleep(min(left, pause))
            if alarms().ended:
                raise interrupted()
