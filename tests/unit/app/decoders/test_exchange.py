"""Handing files over to decoder processes."""

import asyncio
import os
import threading
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from app.decoders import exchange
from app.decoders.frames import Broken, Described, Frame, Info, Pixels, Task
from app.decoders.memory import mapped, memory_file
from app.decoders.process import DecoderProcess
from models import codec


def test_a_memory_file_is_closed_when_the_wait_for_it_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), list[int]()

    def slow_memory_file(*_parts: bytes | memoryview) -> int:
        begun.set()
        go_on.wait()
        made.append(os.open(os.devnull, os.O_RDONLY))
        return made[0]

    monkeypatch.setattr(exchange, "memory_file", slow_memory_file)

    async def cancelled() -> None:
        filling = asyncio.create_task(exchange.filled_memory_file(b"pixels"))
        await asyncio.to_thread(begun.wait)
        filling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await filling
        go_on.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(cancelled())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


SIDE = 700
PICTURE = Info("png", SIDE, SIDE, 1, 1, "RGB", False, 0.0, 0)


def test_a_memory_file_stays_open_until_the_thread_that_maps_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sizes = list[int]()

    def slowly_mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
        begun.set()
        go_on.wait()
        sizes.append(os.fstat(descriptor).st_size)
        return mapped(descriptor, size)

    monkeypatch.setattr(exchange, "mapped", slowly_mapped)
    answered = memory_file(bytes(3 * SIDE * SIDE))

    async def cancelled() -> None:
        decoder = _Answering(Pixels(PICTURE, (SIDE, SIDE, 3), None, None), answered)
        task = Task(100, SIDE * SIDE, 1.0)
        taking = asyncio.create_task(
            exchange.decoded_by(cast(DecoderProcess, decoder), lambda _seen: True, task)
        )
        await asyncio.to_thread(begun.wait)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        go_on.set()

    asyncio.run(cancelled())  # which waits for the threads of its loop
    assert sizes == [3 * SIDE * SIDE]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(answered)


def test_a_file_that_comes_beside_a_description_is_closed_and_ends_the_process() -> None:
    given = os.open(os.devnull, os.O_RDONLY)
    description = codec.Description("png", 1, 1, 1, 1, "RGB", {}, None, None)

    async def described() -> None:
        decoder = cast(DecoderProcess, _Answering(Described(description), given))
        await exchange.described_by(decoder, lambda _seen: True)

    with pytest.raises(Broken):
        asyncio.run(described())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given)


class _Answering:
    """A decoder process that has one answer, and the memory file beside it."""

    def __init__(self, answer: Frame, memory: int) -> None:
        self._answer = answer, memory

    async def receive(self) -> tuple[Frame, int]:
        return self._answer
