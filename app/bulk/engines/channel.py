"""The frames between a bulk command and the processes that read images for it.

A frame is its length in 4 bytes, big-endian, and MessagePack. Both ends are processes of the same
command, over a socket of their own.
"""

import asyncio
import os
import pickle
import struct
from typing import Any

import msgspec

from app.bulk.engines.engine import Finished, Task
from app.bulk.sources.source import Source
from app.intake.item import Url
from app.intake.spool import Blob
from models.domain.errors import ServiceError

_LENGTH = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True, array_like=True):
    """The first frame of a reader: the network that it found, or why it cannot work."""

    identity: dict[str, Any] | None
    problem: str | None = None


class SentTask(msgspec.Struct, array_like=True):
    """A task; `data` is the content, or `error` its pickled error, if the reader cannot read it.

    Names are bytes, because they need not be UTF-8.
    """

    index: int
    name: bytes
    place: bytes
    target: bytes
    replaces: bool
    data: bytes | None
    error: bytes | None

    @classmethod
    def of(cls, task: Task, content: Blob | Url | ServiceError | None) -> "SentTask":
        """Return a task with its content, or the error of reading it, if that was done."""
        data = content.read() if isinstance(content, Blob) else None
        error = pickle.dumps(content) if isinstance(content, ServiceError) else None
        name, place, target = map(os.fsencode, (task.source.name, task.source.place, task.target))
        return cls(task.index, name, place, target, task.replaces, data, error)

    def task(self) -> Task:
        """Return the task."""
        has_content = self.data is not None or self.error is not None
        load = self._content if has_content else None
        source = Source(os.fsdecode(self.name), os.fsdecode(self.place), load)
        return Task(self.index, source, os.fsdecode(self.target), self.replaces)

    def _content(self, _limit: int) -> bytes:
        if self.error is not None:
            raise pickle.loads(self.error)  # noqa: S301 (of our own command)
        assert self.data is not None
        return self.data


class Chunk(msgspec.Struct, tag=True, array_like=True):
    """Tasks that a reader answers together."""

    number: int
    tasks: list[SentTask]


class Done(msgspec.Struct, tag=True, array_like=True):
    """The records of a chunk, in its order, each with whether it is an error."""

    number: int
    records: list[tuple[bytes, bool]]

    def finished(self) -> list[Finished]:
        """Return the records."""
        return [Finished(line, failed) for line, failed in self.records]


class Refused(msgspec.Struct, tag=True, array_like=True):
    """Results cannot be written: the command ends with this text."""

    problem: str


Frame = Hello | Chunk | Done | Refused

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Frame)


def send(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Write a frame."""
    body = _ENCODER.encode(frame)
    writer.write(_LENGTH.pack(len(body)) + body)


async def receive(reader: asyncio.StreamReader) -> Any:
    """Return the next frame; raises IncompleteReadError where the other end has closed."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return _DECODER.decode(await reader.readexactly(length))
