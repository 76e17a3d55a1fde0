"""Jobs are put into calls without waiting for each other."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.fakes import fake_job
from workers.cluster.outgoing import MOST_BYTES, Group, Outgoing, Pending


def within_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def pending(number: int, n_pixels: int = 1, losses: int = 0) -> Pending:
    waiter = asyncio.get_running_loop().create_future()
    return Pending(number, fake_job(number % 250, n_pixels=n_pixels), waiter, losses)


class Sent:
    """The groups that were sent, as numbers."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def __call__(self, group: Group) -> None:
        self.groups.append(group)

    @property
    def numbers(self) -> list[list[int]]:
        return [[*group.jobs] for group in self.groups]


def test_jobs_of_one_turn_of_the_loop_share_calls_of_the_largest_size() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent, size=4)
        for number in range(6):
            outgoing.add(pending(number))
        await asyncio.sleep(0.05)
        assert sent.numbers == [[0, 1, 2, 3], [4, 5]]

    within_a_loop(test)


def test_a_job_alone_is_sent_in_the_next_turn_of_the_loop() -> None:
    async def test() -> None:
        sent = Sent()
        Outgoing(sent).add(pending(7))
        await asyncio.sleep(0)
        assert sent.numbers == [[7]]

    within_a_loop(test)


def test_jobs_gather_while_a_call_is_on_its_way() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent)
        outgoing.add(pending(0))
        await asyncio.sleep(0)
        for number in (1, 2):
            outgoing.add(pending(number))
            await asyncio.sleep(0)
        assert sent.numbers == [[0]]
        outgoing.accepted()
        assert sent.numbers == [[0], [1, 2]]

    within_a_loop(test)


def test_jobs_wait_for_no_call_that_is_late() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent)
        for number in (0, 1):
            outgoing.add(pending(number))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert sent.numbers == [[0], [1]]

    within_a_loop(test)


def test_a_job_that_nobody_waits_for_is_left_out() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent)
        gone, kept = pending(0), pending(1)
        outgoing.add(gone)
        outgoing.add(kept)
        gone.waiter.cancel()
        await asyncio.sleep(0)
        assert sent.numbers == [[1]]

    within_a_loop(test)


def test_a_call_is_bounded_in_bytes() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent)
        for number in range(3):
            outgoing.add(pending(number, n_pixels=MOST_BYTES // 2))
        await asyncio.sleep(0)
        assert sent.numbers == [[0, 1], [2]]

    within_a_loop(test)


def test_a_suspect_job_shares_its_call_with_no_other() -> None:
    async def test() -> None:
        sent = Sent()
        outgoing = Outgoing(sent)
        for number, losses in enumerate((0, 2, 1, 0)):
            outgoing.add(pending(number, losses=losses))
        await asyncio.sleep(0)
        assert sent.numbers == [[0], [1], [2, 3]]

    within_a_loop(test)
