"""Digests of the contents of images."""

import asyncio
import hashlib
from collections.abc import Awaitable

import pytest

from app.intake.spool import DIGESTED_AT_ONCE as AT_ONCE
from app.intake.spool import Blob, Digester, digests_of


async def counted(work: Awaitable[list[bytes]]) -> tuple[list[bytes], int]:
    """Return the digests, and how often the event loop did other work meanwhile."""
    turns, loop = 0, asyncio.get_running_loop()

    def other() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(other)

    loop.call_soon(other)
    return await work, turns


@pytest.mark.parametrize(("size", "turns"), [(AT_ONCE, 63), (AT_ONCE // 4, 15), (100, 0)])
def test_the_event_loop_does_other_work_between_the_digests_of_many_contents(
    size: int, turns: int
) -> None:
    contents = [bytes([number]) * size for number in range(64)]
    digests, others = asyncio.run(counted(digests_of(map(Blob.of, contents))))
    assert digests == [hashlib.sha256(content).digest() for content in contents]
    assert others == turns


def test_digests_that_are_wanted_at_the_same_time_share_the_bound_of_a_turn() -> None:
    contents = [bytes([number]) * AT_ONCE for number in range(64)]
    largest = 0

    async def wanted() -> list[bytes]:
        nonlocal largest
        digester, loop = Digester(), asyncio.get_running_loop()
        in_turn = 0

        def next_turn() -> None:
            nonlocal in_turn
            in_turn = 0
            loop.call_soon(next_turn)

        async def one(content: bytes) -> bytes:
            nonlocal in_turn, largest
            found = await digester.digest_of(Blob.of(content))
            in_turn += 1
            largest = max(largest, in_turn)
            return found

        loop.call_soon(next_turn)
        return await asyncio.gather(*map(one, contents))

    digests = asyncio.run(wanted())
    assert digests == [hashlib.sha256(content).digest() for content in contents]
    assert largest == 1
