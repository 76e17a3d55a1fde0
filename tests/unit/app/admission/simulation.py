"""A server in virtual time: real admission in front of cores that only pass the time."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec
from unittest.mock import patch

from app.admission import Admission, Limits, Permit
from app.admission.clients import LOCAL
from app.admission.counters import Counters, Total
from models.domain.deadline import Deadline
from models.domain.errors import Overloaded
from models.domain.job import Lane

P = ParamSpec("P")


def admitted(admission: Admission, images: int, n_bytes: int = 0, client: str = LOCAL) -> Permit:
    """Return a permit that holds images and bytes from the start."""
    permit = admission.enter(client)
    try:
        permit.grow(images, n_bytes)
    except BaseException:
        permit.release()
        raise
    return permit


def held(admission: Admission) -> tuple[int, int]:
    """Return the images and bytes that all front ends have in flight."""
    return admission.counters.total(Total.IMAGES), admission.counters.total(Total.BYTES)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time jumps to the next timer as soon as nothing else is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        # The stubs of asyncio leave out its private queues, which a virtual clock has to read:
        # no public method says when the next timer is due.
        loop: Any = self
        if not loop._ready and loop._scheduled:
            self.now = max(self.now, loop._scheduled[0]._when)
        private: Any = super()
        private._run_once()


@dataclass(slots=True)
class Seen:
    """What clients saw, as the moment of the answer and the seconds it took."""

    good: list[tuple[float, float]] = field(default_factory=list)
    refused: list[tuple[float, float]] = field(default_factory=list)
    died: int = 0

    @property
    def died_of_accepted(self) -> float:
        return self.died / max(1, self.died + len(self.good))

    def p99(self) -> float:
        ordered = sorted(seconds for _, seconds in self.good)
        return ordered[int(len(ordered) * 0.99)]

    def rate(self, start: float, end: float) -> float:
        return sum(start <= at < end for at, _ in self.good) / (end - start)


class Cores:
    """Cores that compute one image each; bulk yields for `ageing` seconds, as in the batcher."""

    def __init__(self, cores: int, ageing: float) -> None:
        self._free = cores
        self._ageing = ageing
        self._waiting: list[tuple[bool, float, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def one(self, lane: Lane) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append((lane is Lane.BULK, loop.time(), turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._give()
                raise
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        late = asyncio.get_running_loop().time() - self._ageing
        self._waiting = [each for each in self._waiting if not each[2].done()]
        if self._waiting:
            best = min(self._waiting, key=lambda each: (each[0] and each[1] > late, each[1]))
            best[2].set_result(None)
        else:
            self._free += 1


class Simulation:
    """`cores` cores, each of which takes about `seconds` for an image; `expected` is expected."""

    def __init__(
        self,
        cores: int = 2,
        seconds: float = 0.05,
        images: int = 512,
        ageing: float = 1.0,
        expected: float = 0.04,
    ) -> None:
        self.expected = expected
        clock = asyncio.get_running_loop().time
        self.clock = clock
        with patch("app.admission.counters.secrets.token_bytes", bytes):  # no two clients share
            self.counters = Counters()
        limits, bulk = Limits(images, 1 << 30, 1 << 29), max(1, cores - 1)
        self.admission = Admission(
            limits, self.counters, cores, 2 * cores, most_bulk=bulk, clock=clock
        )
        self.cores = Cores(cores, ageing)
        self.seconds = seconds
        self.chance = random.Random(1)

    async def request(
        self,
        client: str,
        seconds: float,
        seen: Seen,
        cost: float = 1.0,
        memory: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """Simulate a request of one image, before a deadline; it may wait for `memory`."""
        start, expected = self.clock(), int(cost * self.expected * 1e6)
        deadline = Deadline(start + seconds)
        try:
            with self.admission.enter(client, deadline) as permit:
                permit.complete(100_000)
                permit.expect(1)
                async with AsyncExitStack() as held:
                    await held.enter_async_context(asyncio.timeout_at(deadline.alarm))
                    turn = held.enter_context(permit.turn(expected))
                    await turn.take()
                    if memory is not None:
                        turn.leave()
                        await held.enter_async_context(memory)
                        await turn.take()
                    took = self.seconds * cost * self.chance.uniform(0.7, 1.3)
                    async with self.cores.one(permit.lane):
                        await asyncio.sleep(took)
        except Overloaded:
            seen.refused.append((self.clock(), self.clock() - start))
        except TimeoutError:
            seen.died += 1
        else:
            seen.good.append((self.clock(), self.clock() - start))

    async def open_loop(
        self, client: str, rate: float, seconds: float, deadline: float, seen: Seen
    ) -> None:
        """Send requests as a Poisson process; return when the last of them was answered."""
        end, tasks = self.clock() + seconds, []
        while self.clock() < end:
            await asyncio.sleep(self.chance.expovariate(rate))
            tasks.append(asyncio.create_task(self.request(client, deadline, seen)))
        await asyncio.gather(*tasks)

    async def closed_loop(
        self,
        client: str,
        under_way: int,
        seconds: float,
        deadline: float,
        seen: Seen,
        cost: float = 1.0,
    ) -> None:
        """Keep some requests under way; after a refusal the next one leaves a second later."""
        end = self.clock() + seconds

        async def one() -> None:
            while self.clock() < end:
                refused = len(seen.refused)
                await self.request(client, deadline, seen, cost)
                if len(seen.refused) > refused:
                    await asyncio.sleep(self.chance.uniform(0.5, 1.5))

        await asyncio.gather(*(one() for _ in range(under_way)))


def simulated(scenario: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test to its end in virtual time."""

    @wraps(scenario)
    def run(*args: P.args, **options: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(scenario(*args, **options))

    return run
