"""A process that is killed from outside is not the fault of its image, which gets another one."""

import asyncio
import os
import signal
from collections.abc import Awaitable

import numpy as np
import pytest

from app.decoders import DecoderPool, Encode
from app.decoders.pool import DecoderProcess
from models.codec import Decoded, Encoding, ImageFormat
from models.domain.errors import Unavailable
from tests.decoder_pool import drawn


def stopped(pool: DecoderPool) -> DecoderProcess:
    """Return the only process of a pool, which will not answer."""
    (idle,) = pool._idle
    os.kill(idle.pid, signal.SIGSTOP)
    return idle


async def begun(pool: DecoderPool, work: Awaitable[object]) -> "asyncio.Future[object]":
    """Begin work, and return when it has been handed over to the only process."""
    task = asyncio.ensure_future(work)
    while pool._idle or not pool.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


async def decoded(pool: DecoderPool) -> None:
    data = drawn()
    found = await pool.decode(data, len(data))
    assert isinstance(found, Decoded)


@pytest.mark.parametrize("fork_server", [True, False])
async def test_an_image_whose_process_is_killed_is_decoded_in_another_one(
    pool: DecoderPool, fork_server: bool
) -> None:
    await pool.start()
    idle, server = stopped(pool), pool._server
    assert server is not None
    task = await begun(pool, decoded(pool))
    os.kill(server.process.pid if fork_server else idle.pid, signal.SIGKILL)
    await task
    assert pool.ended == {"killed": 1}


async def test_an_image_whose_processes_are_killed_twice_may_be_sent_again(
    pool: DecoderPool,
) -> None:
    await pool.start()
    first = stopped(pool)
    works, forked = pool._new, list[DecoderProcess]()

    async def fork() -> DecoderProcess:
        decoder = await works()
        os.kill(decoder.pid, signal.SIGSTOP)
        forked.append(decoder)
        return decoder

    pool._new = fork  # type: ignore[method-assign]  # the next one does not answer too
    task = await begun(pool, decoded(pool))
    os.kill(first.pid, signal.SIGKILL)
    while not forked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    os.kill(forked[0].pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="send it again"):
        await task
    assert pool.ended == {"killed": 2}


async def test_encoding_that_is_killed_is_not_the_fault_of_the_image(pool: DecoderPool) -> None:
    pixels = np.zeros((40, 50, 3), np.uint8)
    task = Encode(pixels.shape, ImageFormat.PNG, Encoding(), None, None, 10.0)
    await pool.start()
    idle = stopped(pool)
    encoding = await begun(pool, pool.encode(task, pixels, None))
    os.kill(idle.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="send it again"):
        await encoding
    assert pool.ended.total() == 1  # a `crash` where a thread still put the pixels into the area
