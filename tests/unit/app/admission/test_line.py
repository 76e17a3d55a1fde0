"""The order in which images are let through."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from app.admission.line import FairLine, Turn
from models.domain.job import Lane

BULK = (Lane.BULK, True)


class Line:
    """A fair line, the names of the images that were let through, and what each image costs."""

    def __init__(self, least: int = 1, most_bulk: int | None = None, alone: int = 0) -> None:
        # 0.4 s of work may be past the line
        self.line = FairLine(least, 4.0, 1.0, lambda: 100.0, most_bulk, alone)
        self.order: list[str] = []
        self.cost = 1.0
        self.standings: dict[str, tuple[Lane, bool]] = {}
        """The lane of each client now, and whether others want something."""
        self.ends: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *names: str) -> None:
        """Let images wait; the first letter of a name is its client."""
        self.tasks += [asyncio.create_task(self._take(name)) for name in names]
        await asyncio.sleep(0)

    async def _take(self, name: str) -> None:
        standing = lambda: self.standings.get(name[0], (Lane.INTERACTIVE, True))  # noqa: E731
        permit: Any = SimpleNamespace(client=name[0], in_background=False, standing=standing)
        with Turn(self.line, permit, int(self.cost * 1e6)) as turn:
            await turn.take()
            self.order.append(name)
            self.ends.append(asyncio.Event())
            await self.ends[-1].wait()

    async def leave(self) -> None:
        """End the oldest turn."""
        self.ends.pop(0).set()
        for _ in range(3):
            await asyncio.sleep(0)

    async def end_all(self) -> None:
        """End the turns in their order until nothing waits."""
        while self.ends:
            await self.leave()
        await asyncio.gather(*self.tasks)
        assert self.line.waiting == 0


async def test_bulk_leaves_a_place_free_for_others_and_takes_it_when_it_is_bulk_no_more() -> None:
    line = Line(least=3, most_bulk=2)
    line.standings["a"] = BULK
    await line.ask("a1", "a2", "a3", "a4")
    assert line.order == ["a1", "a2"]
    await line.ask("b1")
    assert line.order == ["a1", "a2", "b1"]
    line.standings["a"] = (Lane.BULK, False)
    await line.leave()
    assert line.order == ["a1", "a2", "b1", "a3"]
    await line.end_all()


async def test_an_image_whose_request_ends_while_it_waits_takes_no_place() -> None:
    line = Line()
    await line.ask("a1", "a2", "a3")
    line.tasks.pop(1).cancel()
    await line.end_all()
    assert line.order == ["a1", "a3"]


@pytest.mark.parametrize(
    ("standing", "cost", "passed"),
    [
        ((Lane.INTERACTIVE, False), 0.3, 2),
        ((Lane.INTERACTIVE, False), 0.1, 4),
        ((Lane.BULK, False), 0.3, 6),
        (BULK, 0.1, 1),
        ((Lane.BACKGROUND, True), 0.3, 2),
    ],
)
async def test_how_many_images_pass_and_that_bulk_and_jobs_keep_no_other_client_waiting(
    standing: tuple[Lane, bool], cost: float, passed: int
) -> None:
    line = Line(least=2, most_bulk=1, alone=6)
    line.standings["a"], line.cost = standing, cost
    await line.ask(*(f"a{n}" for n in range(9)))
    assert len(line.order) == passed
    line.standings["a"] = BULK if standing[0] is Lane.BULK else standing
    await line.ask("b1")
    assert ("b1" in line.order) is (standing[0] is not Lane.INTERACTIVE)
    await line.end_all()
