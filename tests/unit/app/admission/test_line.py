"""The order in which images are let through."""

import asyncio
from collections.abc import Callable

import pytest

from app.admission.line import FairLine, Place, Places, Share
from models.domain.deadline import NEVER, Deadline
from models.domain.errors import Overloaded


class Line:
    """A fair line, the names of the images that were let through, and what each image costs."""

    def __init__(self, least: int = 1, most_bulk: int | None = None) -> None:
        self.line = FairLine(least, clock=lambda: 100.0, most_bulk=most_bulk)
        self.order: list[str] = []
        self.cost = 0.0
        self.deadline = NEVER
        self.shares: dict[str, Share] = {}
        """What each client holds now."""
        self.places: list[Place] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *names: str) -> None:
        """Let images wait; the first letter of a name is its client."""
        for name in names:
            self.tasks.append(asyncio.create_task(self._take(name)))
        await asyncio.sleep(0)

    def _share(self, client: str) -> Callable[[], Share]:
        return lambda: self.shares.get(client, Share.SMALL)

    async def _take(self, name: str) -> None:
        client = name[0]
        cost = self.cost
        place = await self.line.take(
            client, lambda: cost or self.cost, self.deadline, self._share(client)
        )
        self.order.append(name)
        self.places.append(place)

    async def end_all(self) -> None:
        """End the turns in their order until nothing waits."""
        while self.places:
            self.line.leave(self.places.pop(0))
            await asyncio.sleep(0)
        await asyncio.gather(*self.tasks)


def test_images_of_a_kind_that_was_not_measured_when_they_came_take_turns_by_their_cost() -> None:
    async def scenario() -> None:
        line = Line()
        await line.ask("a1", "a2", "a3", "a4")
        line.cost = 1.0
        await line.ask("b1", "b2")
        await line.end_all()
        assert line.order == ["a1", "b1", "a2", "b2", "a3", "a4"]

    asyncio.run(scenario())


def test_bulk_leaves_a_place_free_for_others_and_takes_it_when_it_is_bulk_no_more() -> None:
    async def scenario() -> None:
        line = Line(least=3, most_bulk=2)
        line.shares["a"] = Share.BULK
        await line.ask("a1", "a2", "a3", "a4")
        assert line.order == ["a1", "a2"]
        await line.ask("b1")
        assert line.order == ["a1", "a2", "b1"]
        line.shares["a"] = Share.LARGE
        line.line.leave(line.places.pop(0))
        await asyncio.sleep(0)
        assert line.order == ["a1", "a2", "b1", "a3"]
        await line.end_all()
        assert line.line.waiting == 0

    asyncio.run(scenario())


def test_an_image_whose_turn_comes_too_late_is_refused_and_not_computed_in_vain() -> None:
    async def scenario() -> None:
        line = Line()
        line.cost = 1.0
        await line.ask("a1")
        line.deadline = Deadline(100.0 + 0.4)
        await line.ask("a2")
        line.deadline = Deadline(100.0 + 1.1)
        await line.ask("a3")
        line.line.leave(line.places.pop(0))
        with pytest.raises(Overloaded, match=r"came 0.4 seconds before .* takes about 1.0"):
            await line.tasks.pop(1)
        await line.end_all()
        assert line.order == ["a1", "a3"]
        assert line.line.waiting == 0

    asyncio.run(scenario())


def test_an_image_whose_request_ends_while_it_waits_takes_no_place() -> None:
    async def scenario() -> None:
        line = Line()
        await line.ask("a1", "a2", "a3")
        line.tasks.pop(1).cancel()
        await line.end_all()
        assert line.order == ["a1", "a3"]

    asyncio.run(scenario())


def test_a_client_that_leaves_lets_those_through_that_waited_behind_its_large_share() -> None:
    async def scenario() -> None:
        line = Line(least=1, most_bulk=2)
        line.cost = 1.0
        line.shares |= {"a": Share.BULK, "b": Share.LARGE}
        await line.ask("a1", "b1", "c1")
        assert line.order == ["a1"]
        line.tasks[1].cancel()
        await asyncio.gather(line.tasks[1], return_exceptions=True)
        await asyncio.sleep(0)
        assert line.order == ["a1", "c1"]

    asyncio.run(scenario())


def test_a_client_alone_fills_its_batches_although_its_images_take_long() -> None:
    places = Places(least=2, room=lambda: 0.4, most_bulk=1, alone=6)
    passed: list[Place] = []

    def fill(share: Share, cost: float) -> int:
        """Let images pass while they fit; return how many there are."""
        while places.fits(share):
            large = places.is_large(share, others=False)
            passed.append(Place(cost, large))
            places.add(passed[-1])
        return places.images

    def end_all() -> None:
        while passed:
            places.remove(passed.pop())

    assert fill(Share.SMALL, 0.3) == 2
    end_all()
    assert fill(Share.FILLING, 0.3) == 6
    assert [place.large for place in passed] == [False] * 2 + [True] * 4
    assert not places.fits(Share.BULK)
    end_all()
    assert fill(Share.FILLING, 1.0) == 4, "these fill batches, but others of the client wait long"
    end_all()
    assert fill(Share.LARGE, 0.3) == 2, "these gain nothing from batches"


def test_images_that_only_fill_batches_keep_no_other_client_waiting() -> None:
    places = Places(least=1, room=lambda: 0.4, most_bulk=1, alone=6)
    for _ in range(6):
        assert places.fits(Share.FILLING)
        places.add(Place(0.3, places.is_large(Share.FILLING, others=True)))
    assert not places.fits(Share.FILLING)
    assert places.fits(Share.SMALL)
