"""Judge readiness by sending a canary image through the backend every few seconds."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from models.domain.backend import Backend, Load
from models.domain.deadline import Deadline
from models.domain.errors import ServiceError, TimedOut
from models.domain.image import Image
from models.domain.job import Job, Labels, Operation, Vector, uncounted
from models.networks.served import ServedNetwork
from workers.filters.registry import parse_one
from workers.operations import Classify, FilterChain, NetworkOutput

LOOK = 0.25
"""Seconds between two checks whether a worker runs; a returned worker is probed at once."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the backend computes, the problem if not, and the load that the verdict is based on.

    `age` is the time in seconds since the last canary passed, None if none has.
    """

    ready: bool
    problem: str | None
    age: float | None
    load: Load


class Canary:
    """Judge of readiness: a worker runs, and a canary passed within the last three intervals.

    A canary passes if its answer comes in time and equals the first answer. A late canary is no
    fault while the device completes other work, because then the device is only busy. After all
    workers were absent, a canary or other work must be completed before the server is ready again.
    """

    def __init__(
        self,
        backend: Backend,
        operations: Sequence[Operation],
        image: Image,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._operations = operations
        self._image = image
        self._interval = interval
        self._clock = clock
        self._passed_at: float | None = None
        self._expected: dict[int, object] = {}
        self._failed = False
        self._absent = False
        self._progress = 0.0
        self._progressed_at: float | None = None
        self.problem: str | None = "no canary has passed yet"

    @property
    def started(self) -> bool:
        """Return whether any canary has passed since the start."""
        return self._passed_at is not None

    def readiness(self) -> Readiness:
        """Return the present verdict with all values that it is based on."""
        load, now = self._look(), self._clock()
        age = None if self._passed_at is None else now - self._passed_at
        if not load.alive:
            return Readiness(False, "no worker is running", age, load)
        if age is None or self._absent:
            return Readiness(False, self.problem or "the worker has just come back", age, load)
        lasts = 3 * self._interval
        busy = self._progressed_at is not None and now - self._progressed_at < lasts
        ready = age < lasts or (busy and not self._failed)
        late = f"no canary has passed for {age:.0f} s, and no other work was done"
        return Readiness(ready, None if ready else self.problem or late, age, load)

    async def probe(self) -> None:
        """Send a canary for each operation, and remember the outcome; neither is counted."""
        for number, operation in enumerate(self._operations):
            deadline = Deadline(self._clock() + 2 * self._interval)
            try:
                with uncounted():
                    completed = await self._backend.run(Job(operation, self._image, deadline))
            except ServiceError as error:
                self.problem = f"{error.code}: {error.detail}"
                self._failed = not isinstance(error, TimedOut)
                return
            # Scores are not compared: their last bits depend on the size of the batch.
            found = completed.result
            assert isinstance(found, Labels | Vector | Image)
            answer: object = found.pixels.tobytes() if isinstance(found, Image) else None
            if isinstance(found, Labels):
                answer = found.class_ids[:1]
            elif isinstance(found, Vector):
                answer = int(found.values.argmax())
            self._failed = self._expected.setdefault(number, answer) != answer
            if self._failed:
                self.problem = "the canary's answer changed"
                return
        self._passed_at, self.problem, self._absent = self._clock(), None, False

    async def keep_probing(self) -> None:
        """Send a canary in each interval, and another as soon as a worker returns; never end."""
        due = self._clock() + self._interval
        while True:
            await asyncio.sleep(min(LOOK, self._interval))
            if self._look().alive and (self._absent or self._clock() >= due):
                await self.probe()
                due = self._clock() + self._interval

    def _look(self) -> Load:
        """Return the load; remember an absence of workers, and work that was completed."""
        load = self._backend.load()
        if not load.alive:
            self._absent, self._progressed_at = True, None
        elif load.progress > self._progress:
            self._progressed_at, self._absent = self._clock(), False
        self._progress = load.progress
        return load


def canary_operations(networks: Iterable[ServedNetwork]) -> list[Operation]:
    """Return the operations of canaries: a label of each network, or its embedding where it has no
    classes; a filter without weights.
    """
    asked = [
        Classify(1, network=each.name)
        if each.n_classes
        else Classify(network=each.name, output=NetworkOutput.EMBEDDING)
        for each in networks
        if each.model is not None
    ]
    return [*asked] or [FilterChain((parse_one("invert", {}),))]


def canary_image() -> Image:
    """Return a ramp of 64 × 64 pixels."""
    ramp = np.linspace(0, 255, 64 * 64 * 3).astype(np.uint8)
    return Image(ramp.reshape(64, 64, 3))
