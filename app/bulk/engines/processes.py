"""Answer images with several processes: readers that read and decode, and workers that compute.

One Python process answers fewer images a second than a GPU does. So the command only finds the
names, deals them out in chunks, and puts the records of the chunks in order.
"""

import asyncio
import contextlib
import signal
import socket
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from itertools import count
from typing import Any

from app.bulk.engines.channel import Chunk, Done, Hello, Refused, SentTask, receive, send
from app.bulk.engines.child import encode_work
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.in_process import Work
from app.bulk.errors import CannotWrite, EngineLost, WrongUsage
from app.bulk.sources import contents
from app.intake.spool import Blob
from app.processes.computing import Child, Computing
from app.processes.plan import Plan
from models.exit_codes import ExitCode
from models.settings import Settings

IMAGES = 32
"""Images of a chunk."""

BYTES = 8 << 20
"""Bytes of contents after which a chunk ends; only those count that a reader cannot read itself."""

CHUNKS = 12
"""Chunks of a reader at a time: records leave in order, so a slow chunk must not empty the others.
On an H200 12 gave 9,031 images a second and 4 gave 7,528."""

MOST_TRIES = 3
"""Readers that may end while they have a chunk; then its images are the cause."""


class ReaderLost(Exception):
    """A reader ended before it had answered a chunk."""


async def start(settings: Settings, work: Work, plan: Plan) -> "Processes":
    """Start workers and readers; WrongUsage says why they cannot do the work."""
    computing = Computing(settings, plan)
    engine = Processes(computing, work, plan.front_ends, settings.max_image_bytes)
    try:
        await engine.begin()
    except Exception:  # re-raised; Ctrl-C and SIGTERM wait for nothing
        await engine.aclose()
        raise
    return engine


class Processes:
    """Engine on `readers` processes and the workers of `computing`."""

    def __init__(self, computing: Computing, work: Work, readers: int, limit: int) -> None:
        self._computing, self._limit = computing, limit
        orders = {"work": encode_work(work)}
        self._readers = [_Reader(computing, number, orders) for number in range(readers)]
        self._numbers = count()

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Return the properties of the loaded network that records depend on."""
        return self._readers[0].identity

    async def begin(self) -> None:
        """Start all readers and wait until they can work."""
        starting = asyncio.gather(*(each.start() for each in self._readers))
        await self._unless_ended(starting)

    async def answers(self, tasks: Iterator[Task]) -> AsyncGenerator[list[Finished], None]:
        """Yield the answers of all tasks, in their order, a chunk at a time."""
        under_way: deque[asyncio.Future[list[Finished]]] = deque()
        has_more = True
        try:
            while has_more or under_way:
                while has_more and len(under_way) < CHUNKS * len(self._readers):
                    chunk = await asyncio.to_thread(self._chunk, tasks)
                    has_more = bool(chunk.tasks)
                    if has_more:
                        under_way.append(asyncio.ensure_future(self._answered(chunk)))
                if under_way:
                    await self._unless_ended(under_way[0])
                    yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()

    async def aclose(self) -> None:
        """End the readers, then the workers."""
        await asyncio.gather(*(each.aclose() for each in self._readers))
        await self._computing.aclose()

    def _chunk(self, tasks: Iterator[Task]) -> Chunk:
        """Return the next chunk; contents that only this process can read are in it."""
        sent: list[SentTask] = []
        size = 0
        while len(sent) < IMAGES and size < BYTES and (task := next(tasks, None)) is not None:
            content = None
            if task.source.load is not None or task.source.name == contents.STANDARD_INPUT:
                content = contents.content(task.source, self._limit)
                size += content.size if isinstance(content, Blob) else 0
            sent.append(SentTask.of(task, content))
        return Chunk(next(self._numbers), sent)

    async def _answered(self, chunk: Chunk) -> list[Finished]:
        """Return the records of a chunk, of another reader if one is lost."""
        for _ in range(MOST_TRIES):
            reader = min(self._readers, key=lambda each: len(each.pending))
            try:
                return await reader.ask(chunk)
            except ReaderLost:
                for each in chunk.tasks:
                    each.replaces = True  # it may have written results without telling
                await reader.start_again()
        raise EngineLost(
            f"{MOST_TRIES} processes ended while they read images {chunk.tasks[0].index} to "
            f"{chunk.tasks[-1].index}; the same command goes on there, and --exclude leaves out "
            "the image that is the cause"
        )

    async def _unless_ended(self, work: "asyncio.Future[Any]") -> None:
        """Wait for work; raise what ended the workers if they end before it."""
        ended = self._computing.ended
        await asyncio.wait((work, ended), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            if ended.result() == ExitCode.INTERRUPTED:
                raise KeyboardInterrupt
            if ended.result() == ExitCode.WRONG_USAGE:
                raise WrongUsage("the workers cannot work with these settings; see above")
            raise SystemExit(ExitCode.TERMINATED)
        if work.exception() is not None:
            work.result()


class _Reader:
    """One process; `pending` are its chunks."""

    def __init__(self, computing: Computing, number: int, orders: Mapping[str, str]) -> None:
        self._computing, self._number, self._orders = computing, number, orders
        self._starting = asyncio.Lock()
        self._child: Child | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._end: Exception = ReaderLost()
        self.pending: dict[int, asyncio.Future[list[Finished]]] = {}
        self.identity: Mapping[str, object] | None = None

    async def start(self) -> None:
        """Start the process and wait until it can work."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = await self._computing.start_reader(
                "app.bulk.engines.child", self._number, self._orders, theirs.fileno()
            )
        self._incoming, self._writer = await asyncio.open_unix_connection(sock=ours)
        try:
            hello = await receive(self._incoming)
        except asyncio.IncompleteReadError:
            raise EngineLost("a process that reads images ended while it started") from None
        assert isinstance(hello, Hello)
        if hello.problem is not None:
            raise WrongUsage(hello.problem)
        self.identity = hello.identity
        self._listening = asyncio.create_task(self._listen())

    async def start_again(self) -> None:
        """Start the process again after its end, once for all who notice it."""
        async with self._starting:
            if self._child is not None and self._listening.done():
                code = await self._child.wait()
                assert code is not None
                self._computing.forget(self._child.pid)
                await self.start()

    async def ask(self, chunk: Chunk) -> list[Finished]:
        """Return the records of a chunk; raises ReaderLost, and CannotWrite."""
        assert self._writer is not None
        if self._listening.done():
            raise self._end
        answer: asyncio.Future[list[Finished]] = asyncio.get_running_loop().create_future()
        self.pending[chunk.number] = answer
        try:
            send(self._writer, chunk)
            return await answer
        finally:
            self.pending.pop(chunk.number, None)

    async def aclose(self) -> None:
        """End the process, which has nothing to finish, and wait for its end."""
        if self._child is None:
            return
        if self._writer is not None:
            self._writer.close()
        self._child.send(signal.SIGTERM)
        await self._child.wait()

    async def _listen(self) -> None:
        """Pass on records until the process ends, or cannot write results."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await receive(self._incoming)
                if isinstance(frame, Refused):
                    self._end = CannotWrite(frame.problem)
                    break
                assert isinstance(frame, Done)
                if frame.number in self.pending:
                    self.pending[frame.number].set_result(frame.finished())
        assert self._writer is not None
        self._writer.close()
        for answer in self.pending.values():
            if not answer.done():
                answer.set_exception(self._end)
