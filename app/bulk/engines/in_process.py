"""Answer images in this process: read ahead, keep the device busy, yield records in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from typing import Protocol

from app import main
from app.admission import Permit
from app.bulk.engines.device_files import DeviceFiles
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.reading import Read, Reader
from app.bulk.errors import WrongUsage
from app.intake.wanted import Wanted
from app.pipeline.results.outcomes import Answer
from app.service import Service
from app.telemetry.metrics import Metrics
from models.settings import Settings

AHEAD = 64
"""Images under way at a time: enough for the next micro-batches while the present ones compute."""

BYTES_AHEAD = 256 << 20
"""Bytes of files under way from which no further ones are read."""


class Work(Protocol):
    """What is done with every image."""

    @property
    def needs_weights(self) -> bool:
        """Return whether a network is needed."""

    @property
    def timing(self) -> bool:
        """Return whether a record has the milliseconds of the stages of the pipeline."""

    def wanted(self) -> Wanted:
        """Return what is wanted of every image."""

    def finished(self, service: Service, answer: Answer, task: Task) -> Awaitable[Finished]:
        """Return the record of an answer, after its result was written."""

    def identity(self, service: Service) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on."""


async def start(settings: Settings, work: Work, service: Service | None = None) -> "InProcess":
    """Start a service in this process; WrongUsage says why it cannot do the work.

    Wrong settings are weights that do not fit their labels, or a GPU that does not exist.
    """
    if service is None:
        try:
            weights, full = work.needs_weights, not work.timing  # others are never continued
            service = await main.start_service(settings, Metrics(), weights, full_batches=full)
        except ValueError as error:
            raise WrongUsage(str(error)) from None
    if work.needs_weights and service.model is None:
        problem = service.computing().weights_problem
        await main.stop_service(service)
        raise WrongUsage(str(problem))
    # The line of a server keeps cores free for other clients, and there are none here.
    service.admission.set_busy_images(AHEAD, AHEAD)
    return InProcess(service, work)


class InProcess:
    """Engine on the service of this process."""

    def __init__(self, service: Service, work: Work) -> None:
        self._service, self._work, self._wanted = service, work, work.wanted()
        self._files = None if work.timing else DeviceFiles(service, self._wanted)
        self.stalls = service.pipeline.stalls

    @property
    def with_worker(self) -> int:
        """Return the number of images that wait for the device or are on it."""
        load = self._service.backend.load()
        return load.queued_jobs + load.running_jobs

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on."""
        return self._work.identity(self._service)

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        """Yield the answers of all tasks, in their order, as many at a time as there are."""
        with self._service.admission.admit(0, 0) as permit:
            window = _Window(self, self._reader(tasks), permit)
            self.stalls.none_comes = window.all_with_worker
            try:
                while not window.is_empty:
                    await window.wait()
                    if finished := window.finished():
                        yield finished
            finally:
                window.cancel()

    async def answer(self, read: Read, permit: Permit) -> Finished:
        """Answer one image that was read."""
        if read.image is not None and self._files is not None:
            answer = await self._files.answer(read.item, read.image)
        else:
            answer = await self._service.pipeline.answer(read.item, self._wanted, permit)
        return await self._work.finished(self._service, answer, read.task)

    def _reader(self, tasks: Iterator[Task]) -> Reader:
        limit = self._service.settings.max_image_bytes
        return Reader(tasks, limit, self._files.look) if self._files else Reader(tasks, limit)

    async def aclose(self) -> None:
        """Stop the service."""
        await main.stop_service(self._service)


class _Window:
    """The images under way, in their order, and the chunk that is being read."""

    def __init__(self, engine: InProcess, reader: Reader, permit: Permit) -> None:
        self._engine, self._reader, self._permit = engine, reader, permit
        self._under_way: deque[tuple[asyncio.Future[Finished], int]] = deque()
        self._bytes = 0
        self._reading: asyncio.Future[list[Read]] | None = self._read()

    @property
    def is_empty(self) -> bool:
        return self._reading is None and not self._under_way

    async def wait(self) -> None:
        """Wait until the oldest image is answered, or until further images are under way."""
        self._engine.stalls.look()
        waits: list[asyncio.Future[Finished] | asyncio.Future[list[Read]]] = []
        if self._under_way:
            waits.append(self._under_way[0][0])
        if self._reading is not None and self._has_room:
            waits.append(self._reading)
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self._reading is not None and self._reading.done() and self._has_room:
            self._begin(self._reading.result())

    def all_with_worker(self) -> bool:
        """Return whether no image will be decoded before one of those with the worker is done.

        There is no room for further ones, or none is left, and those under way are decoded.
        """
        if self._reading is not None and self._has_room:
            return False
        left = sum(not future.done() for future, _ in self._under_way)
        return left <= self._engine.with_worker

    def finished(self) -> list[Finished]:
        """Remove and return the oldest images as far as they are answered."""
        found = []
        while self._under_way and self._under_way[0][0].done():
            future, size = self._under_way.popleft()
            self._bytes -= size
            found.append(future.result())
        return found

    def cancel(self) -> None:
        """End all work; a read that waits for a pipe is left alone."""
        for future, _ in self._under_way:
            future.cancel()
        if self._reading is not None:
            self._reading.cancel()

    @property
    def _has_room(self) -> bool:
        return len(self._under_way) < AHEAD and self._bytes < BYTES_AHEAD

    def _begin(self, chunk: list[Read]) -> None:
        self._reading = self._read() if chunk else None
        for read in chunk:
            work = self._engine.answer(read, self._permit)
            self._under_way.append((asyncio.ensure_future(work), read.size))
            self._bytes += read.size

    def _read(self) -> "asyncio.Future[list[Read]]":
        return asyncio.ensure_future(asyncio.to_thread(self._reader.chunk))
