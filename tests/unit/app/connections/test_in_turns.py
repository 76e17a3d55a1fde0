"""How much of a burst is handled in one turn of the event loop, and in which order."""

import asyncio
from collections.abc import Callable

from app.connections.in_turns import OLDEST, InTurns

MOST = 8


def handled_by(scenario: Callable[[InTurns[int], list[int]], None], turns: int = 1) -> list[int]:
    """Return what was handled until `turns` turns after the scenario."""
    done: list[int] = []

    def handle(number: int) -> float:
        done.append(number)
        return 1

    async def run() -> list[int]:
        scenario(InTurns(handle, MOST, ranks=2), done)
        for _ in range(turns):
            await asyncio.sleep(0)
        return [*done]

    return asyncio.run(run())


def test_what_comes_alone_is_handled_at_once() -> None:
    def scenario(turns: InTurns[int], done: list[int]) -> None:
        turns.add(1, 1)
        assert done == [1]
        assert turns.waiting == 0

    handled_by(scenario)


def test_a_burst_is_handled_in_several_turns_and_in_its_order() -> None:
    def scenario(turns: InTurns[int], done: list[int]) -> None:
        for number in range(3 * MOST):
            turns.add(number, 1)
        assert len(done) == MOST

    assert handled_by(scenario) == list(range(2 * MOST))
    assert handled_by(scenario, 2) == list(range(3 * MOST))


def test_what_is_urgent_is_handled_first_in_the_next_turn() -> None:
    def scenario(turns: InTurns[int], _done: list[int]) -> None:
        for number in range(3 * MOST):
            turns.add(number, 1)
        turns.add(99, 0)

    assert handled_by(scenario)[MOST] == 99


def test_urgent_things_without_end_do_not_keep_others_waiting() -> None:
    def scenario(turns: InTurns[int], _done: list[int]) -> None:
        for number in range(2 * MOST):
            turns.add(number, 0)
        turns.add(99, 1)

        def more() -> None:
            for number in range(MOST):
                turns.add(100 + number, 0)
            asyncio.get_running_loop().call_soon(more)

        more()

    assert 99 in handled_by(scenario, 2 * OLDEST)


def test_what_costs_less_lets_more_be_handled() -> None:
    done: list[int] = []

    def handle(number: int) -> float:
        done.append(number)
        return 0.25

    async def run() -> None:
        turns = InTurns(handle, MOST, ranks=1)
        for number in range(100):
            turns.add(number, 0)
        assert len(done) == 4 * MOST
        assert list(turns.end()) == list(range(4 * MOST, 100))
        await asyncio.sleep(0)
        assert len(done) == 4 * MOST

    asyncio.run(run())


def test_what_waits_behind_an_error_gets_its_turn() -> None:
    done: list[int] = []

    def handle(number: int) -> float:
        if number == MOST:
            raise OSError("no room")
        done.append(number)
        return 1

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        turns = InTurns(handle, MOST, ranks=1)
        for number in range(MOST + 2):
            turns.add(number, 0)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert done == [*range(MOST), MOST + 1]
