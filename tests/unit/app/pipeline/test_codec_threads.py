"""Work on codec threads ends before the coroutine that waits for it does."""

import asyncio
import threading

import pytest

from app.pipeline.coding import CodecThreads


async def test_a_cancelled_caller_holds_what_it_holds_until_its_work_has_ended() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        ended.set()

    threads = CodecThreads(1)
    caller = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):  # as a deadline, a client that leaves and a shutdown may
        caller.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not caller.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
    threads.close()


async def test_work_that_was_cancelled_before_it_began_is_never_done() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        go_on.wait()

    threads = CodecThreads(1)
    busy = asyncio.create_task(threads.run(first))
    await asyncio.to_thread(begun.wait)
    waiting = asyncio.create_task(threads.run(done.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await busy
    threads.close()
    assert not done


async def test_an_error_of_cancelled_work_does_not_replace_the_cancellation() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()
        raise ValueError

    threads = CodecThreads(1)
    caller = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait)
    caller.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    threads.close()
