"""Units that clients share: bounded in total, for each client and each key, over all front ends."""

import asyncio

import pytest

from app.admission import semaphore
from app.admission.counters import ByKey, Counters, Total
from app.admission.semaphore import FairSemaphore
from tests.server import PATIENCE


@pytest.fixture(autouse=True)
def _keys_have_cells_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed the places of keys alike in each run: of 4,096 cells, two keys rarely share one."""
    monkeypatch.setattr("app.admission.counters.secrets.token_bytes", bytes)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Crowd:
    """Tasks that hold a unit until they are told to leave.

    A name begins with its client, `-` for none, and goes on with its key if there are keys.
    """

    def __init__(self, turns: FairSemaphore) -> None:
        self.turns = turns
        self.holding: list[str] = []
        self._leaving: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Let tasks ask for a unit."""
        for name in names:
            self._leaving[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await settle()

    async def leave(self, *names: str) -> None:
        """Let tasks give their units back."""
        for name in names:
            self._leaving[name].set()
        await settle()

    async def end(self) -> None:
        """End all tasks; then no unit is held, and none is waited for."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.turns.used == len(self.turns._queue) == len(self.turns._held) == 0

    async def _stay(self, name: str) -> None:
        async with self.turns.hold(name[0].strip("-"), name[1] if self.turns._per_key else ""):
            self.holding.append(name)
            try:
                await self._leaving[name].wait()
            finally:
                self.holding.remove(name)


@pytest.mark.parametrize(("total", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (64, 48)])
async def test_a_client_that_is_alone_leaves_its_part_free(total: int, most: int) -> None:
    crowd = Crowd(FairSemaphore(total))
    await crowd.come(*(f"a{n}" for n in range(total + 1)), "b")
    assert crowd.holding[most:] == ["b"] * (most < total)
    assert len(crowd.holding) == most + (most < total)
    await crowd.end()


async def test_with_fewer_turns_than_are_held_none_is_given_until_enough_came_back() -> None:
    crowd = Crowd(FairSemaphore(3))
    await crowd.come("-1", "-2", "-3", "b1")
    crowd.turns.set_total(2)
    await crowd.leave("-1")
    assert crowd.holding == ["-2", "-3"]
    await crowd.leave("-2")
    assert crowd.holding == ["-3", "b1"]
    crowd.turns.set_total(3)
    await crowd.come("c1")
    assert crowd.holding == ["-3", "b1", "c1"]
    await crowd.end()


async def test_keys_and_all_have_their_limits_which_may_change() -> None:
    crowd = Crowd(FairSemaphore(total=3, per_key=2))
    await crowd.come("-a1", "-a2", "-a3", "-b1", "-c1")
    assert crowd.holding == ["-a1", "-a2", "-b1"]
    crowd.turns.set_total(9, 3)
    await settle()
    assert crowd.holding == ["-a1", "-a2", "-b1", "-a3", "-c1"]
    await crowd.end()


async def test_a_client_that_waits_for_its_share_or_a_key_holds_nothing_of_the_other() -> None:
    crowd = Crowd(FairSemaphore(total=4, per_key=1))
    await crowd.come("1a", "1b", "1c", "1p", "2p", "1p2", "2q")
    assert crowd.holding == ["1a", "1b", "1c", "2p"], "2q waits for its share, 1p for both"
    await crowd.leave("1a", "1b", "1c")
    assert crowd.holding == ["2p", "2q"]
    await crowd.leave("2p")
    assert crowd.holding == ["2q", "1p"]
    await crowd.end()


@pytest.mark.parametrize("total", [1, 9], ids=["in all", "of one host"])
async def test_fetches_of_two_front_ends_take_turns_at_one_limit(
    several: list[Counters], total: int
) -> None:
    inside = most = 0

    async def fetch(turns: FairSemaphore) -> None:
        nonlocal inside, most
        async with turns.hold("", "example.org"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    both = [FairSemaphore(total, counters, per_key=1) for counters in several]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(fetch(both[n % 2]) for n in range(10)))
    assert most == 1


async def test_a_client_that_lacks_only_its_share_keeps_no_turn_from_another_front_end(
    several: list[Counters], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semaphore, "PATIENCE", 0)
    mine, theirs = (FairSemaphore(4, counters) for counters in several)
    crowd = Crowd(mine)
    await crowd.come("a1", "a2", "a3", "a4")
    await asyncio.sleep(0.02)
    assert crowd.holding == ["a1", "a2", "a3"]
    async with asyncio.timeout(PATIENCE), theirs.hold("b"):
        pass
    await crowd.end()


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("leaves", [False, True], ids=["turn held", "turn given back"])
async def test_all_counts_return_to_zero_whenever_a_request_is_cancelled(
    steps: int, leaves: bool, several: list[Counters]
) -> None:
    counters = several[0]
    crowd = Crowd(FairSemaphore(1, counters, per_key=1))
    await crowd.come("1a")
    await crowd.come("2a")
    if leaves:
        crowd._leaving["1a"].set()
    for _ in range(steps):
        await asyncio.sleep(0)
    crowd.tasks["2a"].cancel()
    await crowd.end()
    assert counters.total(Total.FETCHES) == 0
    assert counters.of(counters.key("host a"), ByKey.FETCHES) == 0
