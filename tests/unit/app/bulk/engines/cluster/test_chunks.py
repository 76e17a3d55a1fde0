"""The queue of chunks: in order, those of lost actors first, blamed ones alone."""

import asyncio
from collections.abc import Callable

from app.bulk.engines.cluster.chunks import MOST_TRIES, Chunks, Pending
from app.bulk.engines.engine import Task
from app.bulk.sources.source import Source


def chunk(number: int) -> Pending:
    answers = asyncio.get_running_loop().create_future()
    return Pending([Task(number, Source(f"{number}.jpg", ""))], b"", answers)


def in_loop(scenario: Callable[[Chunks], None]) -> None:
    async def main() -> None:
        scenario(Chunks())

    asyncio.run(main())


def test_actors_take_chunks_in_order_up_to_their_number() -> None:
    def scenario(chunks: Chunks) -> None:
        first, second = chunk(0), chunk(1)
        chunks.add(first)
        chunks.add(second)
        assert chunks.take([], 2) is first
        assert chunks.take([first], 1) is None
        assert chunks.take([first], 2) is second
        assert chunks.take([], 2) is None

    in_loop(scenario)


def test_a_blamed_chunk_is_done_alone() -> None:
    def scenario(chunks: Chunks) -> None:
        lost, fresh = chunk(0), chunk(1)
        chunks.add(lost)
        chunks.add(fresh)
        assert chunks.take([], 4) is lost
        assert chunks.give_back([lost], "a") is None
        assert chunks.take([fresh], 4) is None
        assert chunks.take([], 4) is lost
        assert chunks.take([lost], 4) is None
        assert chunks.take([], 4) is fresh

    in_loop(scenario)


def test_chunks_of_a_lost_node_are_not_blamed() -> None:
    def scenario(chunks: Chunks) -> None:
        busy, one, two = chunk(0), chunk(1), chunk(2)
        assert chunks.give_back([one, two], "a") is None
        assert chunks.take([busy], 4) is None
        chunks.gone.add("a")
        assert chunks.take([busy], 4) is one
        assert chunks.take([busy, one], 4) is two

    in_loop(scenario)


def test_the_chunk_that_three_actors_did_not_survive_is_named() -> None:
    def scenario(chunks: Chunks) -> None:
        cause, answered = chunk(0), chunk(1)
        answered.answers.set_result([])
        for tries in range(1, MOST_TRIES):
            assert chunks.give_back([answered, cause], "a") is None, tries
            assert chunks.take([], 4) is cause
        assert chunks.give_back([cause], "b") is cause

    in_loop(scenario)


def test_every_actor_that_waits_sees_a_change() -> None:
    async def main() -> None:
        chunks = Chunks()
        waiting = [chunks.changed(), chunks.changed()]
        assert not any(each.done() for each in waiting)
        chunks.add(chunk(0))
        assert all(each.done() for each in waiting)
        assert not chunks.changed().done()

    asyncio.run(main())
