"""Chunks of readers that end on the way."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from app.bulk.engines.channel import Chunk, Done, Hello, Refused, receive, send
from app.bulk.engines.engine import Finished, Task
from app.bulk.engines.processes import Processes
from app.bulk.errors import CannotWrite
from app.bulk.sources.source import Source
from app.processes.computing import Computing
from models.exit_codes import ExitCode

Behave = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Ended:
    """A reader that has ended."""

    pid = 0

    async def wait(self) -> int:
        """Return the exit code."""
        return 0

    def send(self, _signal: int) -> None:
        """Do nothing."""


class Readers:
    """Readers in this process; each that is started behaves as the next of `behaviours`."""

    def __init__(self, *behaviours: Behave) -> None:
        self._behaviours = iter(behaviours)
        self._running: list[asyncio.Task[None]] = []
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start_reader(
        self, _module: str, _number: int, _orders: Mapping[str, Any], channel: int
    ) -> Ended:
        """Start one."""
        theirs = await asyncio.open_unix_connection(sock=socket.socket(fileno=os.dup(channel)))
        self._running.append(asyncio.ensure_future(self._run(*theirs)))
        return Ended()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        send(writer, Hello(None))
        await next(self._behaviours)(reader, writer)
        writer.close()

    def forget(self, _process: int) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Wait for the end of all."""
        await asyncio.gather(*self._running)


def engine(readers: Readers, count: int) -> Processes:
    return Processes(cast(Computing, readers), cast(Any, None), count, 1000)


def test_results_that_a_lost_reader_has_written_may_be_replaced() -> None:
    async def lost(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        chunk: Chunk = await receive(reader)
        assert [each.replaces for each in chunk.tasks] == [False]

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunk: Chunk = await receive(reader)
        records = [(b"replaces" if each.replaces else b"", False) for each in chunk.tasks]
        send(writer, Done(chunk.number, records))

    async def scenario() -> list[list[Finished]]:
        processes = engine(Readers(lost, answers), 1)
        await processes.begin()
        tasks = iter([Task(0, Source("a.jpg", "a.jpg"), "a.jpg")])
        found = [each async for each in processes.answers(tasks)]
        await processes.aclose()
        return found

    assert asyncio.run(scenario()) == [[Finished(b"replaces", False)]]


def test_a_reader_that_cannot_write_gets_no_more_chunks() -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(reader)
        send(writer, Refused("no space"))

    async def scenario() -> None:
        processes = engine(Readers(refuses), 1)
        await processes.begin()
        (reader,) = processes._readers
        for _ in range(2):
            with pytest.raises(CannotWrite, match="no space"):
                await reader.ask(Chunk(0, []))
        await processes.aclose()

    asyncio.run(scenario())


def test_a_chunk_that_ends_without_an_answer_ends_its_reader() -> None:
    program = """
import asyncio
from app.bulk.engines.child import end_if_failed

async def fails():
    raise ZeroDivisionError("a mistake")

async def main():
    asyncio.create_task(fails()).add_done_callback(end_if_failed)
    await asyncio.sleep(60)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == ExitCode.FAILED
    assert b"ZeroDivisionError: a mistake" in done.stderr
