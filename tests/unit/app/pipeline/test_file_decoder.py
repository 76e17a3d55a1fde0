"""Which decoder is asked for a file, and how often."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from app.decoders import DecoderPool, Seen
from app.intake.spool import Blob
from app.pipeline.file_decoder import Decoding, FileDecoder
from models import codec
from models.codec import Decoded
from tests.pictures import damaged_jpeg, jpeg, png

MOST = 10_000_000


@dataclass
class Decoders:
    """Threads and processes that decode on the event loop, and note what came of each call."""

    running: bool = True
    threads: list[object] = field(default_factory=list)
    processes: list[object] = field(default_factory=list)
    behind: list[bool] = field(default_factory=list)

    async def in_thread(
        self, function: Callable[..., object], *args: object, background: bool
    ) -> object:
        self.threads.append(found := function(*args))
        self.behind.append(background)
        return found

    async def decode(
        self, file: object, _size: int, accept: Callable[[Seen], bool], _unasked: object
    ) -> Decoded | Seen:
        assert isinstance(file, bytes)
        opened = codec.open_file(file, max_pixels=MOST)
        seen = Seen(opened.info, opened.cost, opened.memory)
        self.processes.append(found := opened.decode() if accept(seen) else seen)
        return found

    def decoding(self, data: bytes, *, behind: bool = False) -> Decoding:
        one = asyncio.Semaphore(1)
        pool, measured = cast(DecoderPool, self), list[float]().append
        files = FileDecoder(pool, MOST, cast(Any, self.in_thread), one, measured)
        return Decoding(files, Blob.of(data), behind=behind)


async def asked_twice(decoding: Decoding, memory: int) -> Decoded | Seen | None:
    """Decode a file with little memory, then with any."""
    found = await decoding(lambda seen: seen.memory <= memory)
    return await decoding(lambda _seen: True) if isinstance(found, Seen) else found


def test_a_damaged_jpeg_that_waits_for_memory_is_decoded_once_on_a_thread() -> None:
    decoders, data = Decoders(), damaged_jpeg()
    info = codec.probe(data, max_pixels=MOST)
    plain = codec.decode_memory(info, len(data), plain_jpeg=True)
    found = asyncio.run(asked_twice(decoders.decoding(data), plain))
    assert isinstance(found, Decoded)
    assert decoders.threads == [None]
    assert [type(each) for each in decoders.processes] == [Seen, Decoded]


def test_a_plain_jpeg_that_waits_for_memory_is_still_decoded_on_a_thread() -> None:
    decoders = Decoders()
    assert isinstance(asyncio.run(asked_twice(decoders.decoding(jpeg()), 0)), Decoded)
    assert [type(each) for each in decoders.threads] == [Seen, Decoded]
    assert decoders.processes == []


def test_no_thread_is_asked_for_a_file_of_another_format() -> None:
    decoders = Decoders()
    assert isinstance(asyncio.run(asked_twice(decoders.decoding(png()), 0)), Decoded)
    assert decoders.threads == []
    assert [type(each) for each in decoders.processes] == [Seen, Decoded]


def test_threads_of_the_background_decode_every_format_where_there_are_no_processes() -> None:
    decoders = Decoders(running=False)
    found = asyncio.run(asked_twice(decoders.decoding(png(), behind=True), 0))
    assert isinstance(found, Decoded)
    assert [type(each) for each in decoders.threads] == [Seen, Decoded]
    assert decoders.behind == [True, True]
