"""Answer images by actors on the nodes of a Ray cluster, one for each GPU or some CPUs.

The command reads the files, unless the nodes share them, deals them out in chunks, and puts the
records in order. Any actor takes the next chunk, so a slow node holds up none of the others.
"""

import asyncio
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from app.bulk.engines.cluster.agreement import Agreement
from app.bulk.engines.cluster.chunks import Chunks, Pending
from app.bulk.engines.cluster.connection import ActorLost, Cluster, connect
from app.bulk.engines.cluster.layout import Place, places
from app.bulk.engines.cluster.messages import orders
from app.bulk.engines.cluster.receiving import received
from app.bulk.engines.cluster.sending import Sender
from app.bulk.engines.cluster.slot import Slot
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.filtering import Filtering
from app.bulk.engines.in_process import Work
from app.bulk.errors import EngineLost, WrongUsage
from models.settings import Settings

IMAGES_GPU, IMAGES, IMAGES_FILTERED = 32, 16, 8
"""Images of a chunk for GPUs and for CPUs, and of one whose filtered images come back: they wait in
memory until those before them are there."""

LOOK = 5.0
"""Seconds between two looks at the nodes of the cluster: new ones get actors."""

HINT = 20.0
"""Seconds without any actor after which the command says what it waits for."""

PATIENCE = 600.0
"""Seconds without any actor after which the command ends."""


@dataclass(frozen=True, slots=True)
class OnRay:
    """The flags of a cluster: its address, the CPUs of an actor or 0, and whether nodes see files
    of this machine by the same names."""

    address: str
    cpus: int = 0
    shared: bool = False


async def start(settings: Settings, work: Work, how: OnRay) -> "RayEngine":
    """Join a cluster and start actors; WrongUsage says why they cannot do the work."""
    cluster = await asyncio.to_thread(connect, how.address)
    # Ray's library has put a handler in place of Python's, which prints its stack and ends.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    engine = RayEngine(cluster, settings, work, how)
    try:
        await engine.begin()
    except Exception:  # re-raised; Ctrl-C and SIGTERM wait for nothing
        await engine.aclose()
        raise
    return engine


class RayEngine:
    """Engine on the actors of a cluster."""

    def __init__(self, cluster: Cluster, settings: Settings, work: Work, how: OnRay) -> None:
        self._cluster, self._settings, self._work, self._how = cluster, settings, work, how
        self._chunks = Chunks()
        self._slots: dict[tuple[str, int], Slot] = {}
        self._running: set[asyncio.Future[None]] = set()
        self._agreement = Agreement(settings)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._worked = time.monotonic()

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on."""
        return self._agreement.identity

    async def begin(self) -> None:
        """Start an actor at each place, and wait until the first one is ready."""
        try:
            await self._look()
        except ActorLost as error:
            raise EngineLost(f"--ray: the cluster does not tell its nodes: {error}") from None
        if not self._slots:
            wanted = f"{self._how.cpus or 1} CPUs" if self._how.cpus != 1 else "1 CPU"
            raise WrongUsage(f"--ray: no node of the cluster has {wanted}; --ray-cpus takes fewer")
        self._run(self._keep_looking())
        await self._unless_ended(self._agreement.first)

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        """Yield the answers of all tasks, in their order, a chunk at a time."""
        limit = self._settings.max_image_bytes
        sender = Sender(tasks, limit, self._images, shared=self._how.shared)
        under_way: deque[Pending] = deque()
        reading: asyncio.Future[tuple[list[Task], bytes]] | None = _read(sender)
        try:
            while reading is not None or under_way:
                has_room = len(under_way) < self._most_ahead
                waited = [each.answers for each in islice(under_way, 1)]
                await self._unless_ended(*waited, *([reading] if reading and has_room else []))
                if reading is not None and reading.done() and has_room:
                    more = self._begin(under_way, *reading.result())
                    reading = _read(sender) if more else None
                while under_way and under_way[0].answers.done():
                    yield await self._received(under_way.popleft())
        finally:
            if reading is not None:
                reading.cancel()  # a read that waits for a pipe is left alone
            for each in under_way:
                each.answers.cancel()

    async def aclose(self) -> None:
        """End the actors and leave the cluster."""
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._ended.cancel()
        await asyncio.to_thread(self._cluster.close)

    def _begin(self, under_way: deque[Pending], tasks: list[Task], message: bytes) -> bool:
        """Let actors take a chunk; return False if it is empty, because there are no more tasks."""
        if tasks:
            under_way.append(Pending(tasks, message, asyncio.get_running_loop().create_future()))
            self._chunks.add(under_way[-1])
        return bool(tasks)

    @property
    def _images(self) -> int:
        if isinstance(self._work, Filtering):
            return IMAGES_FILTERED
        return IMAGES_GPU if any(each.place.gpus for each in self._slots.values()) else IMAGES

    @property
    def _most_ahead(self) -> int:
        """Return how many chunks may be read before their answers: as many as actors can have."""
        return max(1, sum(each.place.chunks for each in self._slots.values()))

    async def _received(self, chunk: Pending) -> list[Finished]:
        """Return the records of a chunk, in order; filtered images are written side by side."""
        both = zip(chunk.tasks, chunk.answers.result(), strict=True)
        return await asyncio.gather(*(received(self._work, task, each) for task, each in both))

    async def _keep_looking(self) -> None:
        """Start actors on nodes that join; say and count how long there has been no actor."""
        hinted = False
        while True:
            await asyncio.sleep(LOOK)
            with suppress(ActorLost):  # the head node may answer again
                await self._look()
            now = time.monotonic()
            if any(each.is_ready for each in self._slots.values()):
                self._worked, hinted = now, False
            if now - self._worked > PATIENCE:
                raise EngineLost(
                    f"--ray: no actor could work for {PATIENCE:.0f} s: the nodes were lost, or "
                    "their CPUs and GPUs are taken; the same command goes on"
                )
            if now - self._worked > HINT and not hinted:
                hinted = True
                print(
                    "darkroom: no actor is ready yet: they start, or wait for free CPUs or GPUs",
                    file=sys.stderr,
                )

    async def _look(self) -> None:
        """Start actors at places that have none, and forget those of lost nodes."""
        nodes = await asyncio.to_thread(self._cluster.nodes)
        gpus = str(self._settings.gpus) != "0"
        found = {
            (each.node, each.number): each for each in places(nodes, self._how.cpus, gpus=gpus)
        }
        self._slots = {key: slot for key, slot in self._slots.items() if key in found}
        for key in [each for each in found if each not in self._slots]:
            slot = Slot(
                self._cluster, found[key], self._chunks, self._orders, self._agreement.accept
            )
            self._slots[key] = slot
            self._run(slot.run())

    def _run(self, work: Any) -> None:
        running: asyncio.Future[None] = asyncio.ensure_future(work)
        self._running.add(running)
        running.add_done_callback(self._noted)

    def _noted(self, running: "asyncio.Future[None]") -> None:
        """End the command if a part of it has failed."""
        self._running.discard(running)
        if not running.cancelled() and (error := running.exception()) and not self._ended.done():
            self._ended.set_exception(error)

    async def _unless_ended(self, *works: "asyncio.Future[Any]") -> None:
        """Wait for one of several works; raise what ended the command if that comes first."""
        await asyncio.wait((*works, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if not any(each.done() for each in works):
            self._ended.result()

    def _orders(self, place: Place) -> bytes:
        threads = min(self._settings.threads or place.cpus or 1, place.cpus or 1)
        own: dict[str, object] = {"gpus": str(place.gpus), "threads": threads}
        if self._agreement.precision is not None:
            own["precision"] = self._agreement.precision
        return orders(self._settings.model_copy(update=own), self._work)


def _read(sender: Sender) -> "asyncio.Future[tuple[list[Task], bytes]]":
    return asyncio.ensure_future(asyncio.to_thread(sender.chunk))
