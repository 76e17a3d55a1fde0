"""Handing files over to decoder processes."""

import asyncio
import os
import threading

import pytest

from app.decoders import exchange


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
