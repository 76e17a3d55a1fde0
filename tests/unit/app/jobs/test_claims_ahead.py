"""Chunks are claimed while the one before is begun, and given back where they are not."""

import asyncio

from app.jobs.runner import MOST, ClaimsAhead
from app.jobs.store.values import Claim, Span
from tests.fakes import FakeClock


class Chunks:
    """The chunks of one job, `total` of them; `asked` has the limit of each claim."""

    def __init__(self, total: int) -> None:
        self.left = [Claim("1", number, Span(number, 1, 0, 0), 1) for number in range(total)]
        self.asked: list[int] = []
        self.answer = asyncio.Event()
        self.answer.set()

    async def claim(self, limit: int) -> list[Claim]:
        self.asked.append(limit)
        await self.answer.wait()
        found, self.left = self.left[:limit], self.left[limit:]
        return found


def test_the_next_chunk_is_claimed_while_the_last_one_is_begun() -> None:
    async def test() -> None:
        chunks = Chunks(2)
        claims = ClaimsAhead(chunks.claim, FakeClock(0.0))
        first = await claims.next()
        assert first is not None
        assert first.number == 0
        await asyncio.sleep(0)
        assert len(chunks.asked) == 2
        second = await claims.next()
        assert second is not None
        assert second.number == 1
        assert await claims.next() is None

    asyncio.run(test())


def test_more_chunks_are_claimed_at_a_time_while_they_are_begun_quickly() -> None:
    async def test() -> None:
        chunks, clock = Chunks(100), FakeClock(0.0)
        claims = ClaimsAhead(chunks.claim, clock)
        for _ in range(40):
            await claims.next()
        assert chunks.asked[:5] == [1, 2, 4, 8, MOST]
        for _ in range(40):
            clock.advance(10.0)
            await claims.next()
        assert chunks.asked[-1] == 1

    asyncio.run(test())


def test_claims_that_were_not_begun_are_returned_also_one_under_way() -> None:
    async def test() -> None:
        chunks = Chunks(10)
        claims = ClaimsAhead(chunks.claim, FakeClock(0.0))
        await claims.next()  # two more are claimed meanwhile
        chunks.answer.clear()
        waiting = asyncio.create_task(claims.next())
        await asyncio.sleep(0)
        waiting.cancel()
        back: list[Claim] = []
        closing = asyncio.create_task(claims.close(back.extend))
        await asyncio.sleep(0)
        assert not closing.done()
        chunks.answer.set()
        await closing
        assert [each.number for each in back] == [1, 2]
        assert len(chunks.left) == 7

    asyncio.run(test())


def test_claims_are_returned_although_closing_is_cancelled_while_one_is_under_way() -> None:
    """A job that is cancelled is cancelled again each second, until its last claim has ended."""

    async def test() -> None:
        chunks = Chunks(10)
        claims = ClaimsAhead(chunks.claim, FakeClock(0.0))
        await claims.next()
        await asyncio.sleep(0)  # two more are claimed meanwhile
        await claims.next()
        chunks.answer.clear()
        await claims.next()  # four more are being claimed
        await asyncio.sleep(0)
        back: list[Claim] = []
        closing = asyncio.create_task(claims.close(back.extend))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        chunks.answer.set()
        for _turn in range(5):  # of the event loop
            await asyncio.sleep(0)
        assert [each.number for each in back] == [3, 4, 5, 6]

    asyncio.run(test())
