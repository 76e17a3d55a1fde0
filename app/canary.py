"""Readiness: a canary image goes through the backend every few seconds. Knows no HTTP."""

import asyncio
import time
from collections.abc import Callable

from models.backend import Backend
from models.deadline import Deadline
from models.errors import ServiceError
from models.image import Image
from models.job import Job, Labels, Operation, Result


class Canary:
    """Ready means: a canary passed within the last three intervals.

    A canary passes when its answer comes in time and equals the first one.
    """

    def __init__(
        self,
        backend: Backend,
        operation: Operation,
        image: Image,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._operation = operation
        self._image = image
        self._interval = interval
        self._clock = clock
        self._passed_at: float | None = None
        self._expected: Result | None = None
        self.problem: str | None = "no canary has passed yet"

    @property
    def started(self) -> bool:
        """Whether a canary has ever passed."""
        return self._passed_at is not None

    @property
    def ready(self) -> bool:
        """Whether one passed lately."""
        age = self.age
        return age is not None and age < 3 * self._interval

    @property
    def age(self) -> float | None:
        """Seconds since the last one that passed."""
        return None if self._passed_at is None else self._clock() - self._passed_at

    async def sing(self) -> None:
        """Send one canary and note how it fared."""
        deadline = Deadline.after(2 * self._interval, self._clock())
        try:
            completed = await self._backend.run(Job(self._operation, self._image, deadline))
        except ServiceError as error:
            self.problem = f"{error.code}: {error.detail}"
            return
        self._expected = self._expected or completed.result
        if _same(completed.result, self._expected):
            self._passed_at, self.problem = self._clock(), None
        else:
            self.problem = "the canary's answer changed"

    async def keep_singing(self) -> None:
        """One canary per interval, for ever."""
        while True:
            await self.sing()
            await asyncio.sleep(self._interval)


def _same(one: Result, other: Result) -> bool:
    """Equal classes, or equal pixels; scores may differ in the last bits with the batch size."""
    if isinstance(one, Image) and isinstance(other, Image):
        return one.pixels.tobytes() == other.pixels.tobytes()
    if isinstance(one, Labels) and isinstance(other, Labels):
        return one.class_ids[:1] == other.class_ids[:1]
    return False
