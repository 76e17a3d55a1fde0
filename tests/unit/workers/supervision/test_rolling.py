"""Rolling replacements and successors, over real processes that do nothing."""

import asyncio
import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.worker_fixture import wait_until
from workers.supervision.supervisor import Groups, ProcessSpec, Supervisor

LONG = 60.0


def member(lives: Path, name: str = "one", **orders: object) -> ProcessSpec:
    given = {"lives": str(lives), "seconds": LONG, "place": name, "pool": True, **orders}
    last = ("place",)
    return ProcessSpec(name, "tests.supervised_child", given, last_orders=last, patience=10)


def lived(lives: Path) -> list[tuple[int, str]]:
    """Return the ids of the processes that had all orders, with their places, in order."""
    lines = lives.read_text().splitlines() if lives.exists() else []
    places = (json.loads(line) for line in lines if line.startswith("{"))
    return [(each["pid"], each["place"]) for each in places]


def started(lives: Path) -> int:
    """Return how many processes were started."""
    lines = lives.read_text().splitlines() if lives.exists() else []
    return sum(not line.startswith("{") for line in lines)


async def until(supervised: "asyncio.Task[int]", claim: Callable[[], bool]) -> None:
    await wait_until(lambda: claim() or supervised.done())
    assert not supervised.done()


def test_processes_are_replaced_one_by_one_and_the_new_one_works_before_the_old_one_leaves(
    tmp_path: Path,
) -> None:
    lives = tmp_path / "lives"
    groups: Groups = [[member(lives, "one")], [member(lives, "two")]]

    async def test() -> None:
        made = Supervisor(groups)
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 2)
        before = {place: pid for pid, place in lived(lives)}
        signal.raise_signal(signal.SIGUSR2)
        await until(running, lambda: len(lived(lives)) == 4)
        assert [place for _, place in lived(lives)[2:]] == ["one", "two"]
        left = (tmp_path / "lives.left").read_text().split()
        assert left[0] == str(before["one"])
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_sighup_replaces_processes_by_ones_with_new_orders_unless_those_are_wrong(
    tmp_path: Path,
) -> None:
    lives, old = tmp_path / "lives", member(tmp_path / "lives")
    answers: list[Groups | ValueError] = [
        ValueError("a wrong line"),
        [[replace(old, orders={**old.orders, "place": "new"})]],
    ]

    def reload() -> Groups:
        answer = answers.pop(0)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    async def test() -> None:
        running = asyncio.create_task(Supervisor([[old]], reload=reload).run())
        await until(running, lambda: len(lived(lives)) == 1)
        signal.raise_signal(signal.SIGHUP)
        await until(running, lambda: len(answers) == 1)
        signal.raise_signal(signal.SIGHUP)
        await until(running, lambda: len(lived(lives)) == 2)
        assert lived(lives)[1][1] == "new"
        assert started(lives) == 2, "a reload that failed started something"
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())


def test_a_replacement_that_never_works_leaves_the_old_process_alone(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    broken = replace(member(lives), orders={"lives": str(lives), "code": 3, "broken": True})

    async def test() -> None:
        made = Supervisor([[member(lives)]], reload=lambda: [[broken]])
        running = asyncio.create_task(made.run())
        await until(running, lambda: len(lived(lives)) == 1)
        signal.raise_signal(signal.SIGHUP)
        await until(running, lambda: started(lives) == 2 and not made._rounds)
        assert made._running["one"].pid == lived(lives)[0][0]
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0

    asyncio.run(test())
