"""Digests of the contents of images."""

import asyncio
import hashlib

import pytest

from app.intake.content_digest import AT_ONCE, digests_of
from app.intake.spool import Blob


async def digested(contents: list[bytes]) -> tuple[list[bytes], int]:
    """Return the digests, and how often the event loop did other work meanwhile."""
    turns, loop = 0, asyncio.get_running_loop()

    def other() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(other)

    loop.call_soon(other)
    return await digests_of(map(Blob.of, contents)), turns


@pytest.mark.parametrize(("size", "turns"), [(AT_ONCE, 63), (AT_ONCE // 4, 15), (100, 0)])
def test_the_event_loop_does_other_work_between_the_digests_of_many_contents(
    size: int, turns: int
) -> None:
    contents = [bytes([number]) * size for number in range(64)]
    digests, others = asyncio.run(digested(contents))
    assert digests == [hashlib.sha256(content).digest() for content in contents]
    assert others == turns
