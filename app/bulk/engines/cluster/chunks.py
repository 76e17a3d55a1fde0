"""Chunks of images that wait for an actor, in order, with those of lost actors first.

A chunk is blamed for an actor that ended while it had the chunk, unless the whole node was lost.
A blamed chunk is done alone, so that a second end shows whether it is the cause.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from app.bulk.engines.cluster.messages import Answered
from app.bulk.engines.engine import Task

MOST_TRIES = 3
"""Actors that may end while they have a chunk; then its images are the cause."""


@dataclass(eq=False, slots=True)
class Pending:
    """Tasks with the message that describes them, and the future answers in their order.

    `blamed_on` are the nodes whose actors ended while they had this chunk.
    """

    tasks: list[Task]
    message: bytes
    answers: "asyncio.Future[list[Answered]]"
    blamed_on: list[str] = field(default_factory=list)

    def blame(self, gone: Collection[str]) -> int:
        """Return how many actors this chunk may have ended; those of nodes `gone` do not count."""
        return sum(node not in gone for node in self.blamed_on)


class Chunks:
    """The queue that all actors take chunks from. `gone` are the nodes that were lost."""

    def __init__(self) -> None:
        self._new: deque[Pending] = deque()
        self._lost: deque[Pending] = deque()
        self._change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.gone: set[str] = set()

    def add(self, chunk: Pending) -> None:
        """Append a chunk."""
        self._new.append(chunk)
        self._note()

    def give_back(self, chunks: Iterable[Pending], node: str) -> Pending | None:
        """Put the chunks of an actor that ended before all others.

        Returns a chunk that has ended too many actors, or None.
        """
        given = [each for each in chunks if not each.answers.done()]
        for each in given:
            each.blamed_on.append(node)
        self._lost.extendleft(reversed(given))
        self._note()
        return next((each for each in given if each.blame(self.gone) >= MOST_TRIES), None)

    def take(self, under_way: Collection[Pending], most: int) -> Pending | None:
        """Return the next chunk for an actor that has those `under_way`, or None for now.

        A blamed chunk is taken by an actor without any, and nothing is taken beside it.
        """
        if len(under_way) >= most or any(each.blame(self.gone) for each in under_way):
            return None
        if not self._lost:
            return self._new.popleft() if self._new else None
        if under_way and self._lost[0].blame(self.gone):
            return None
        return self._lost.popleft()

    def changed(self) -> "asyncio.Future[None]":
        """Return a future that ends at the next change; call it before `take`, and never cancel it.

        Actors share it.
        """
        if self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        return self._change

    def _note(self) -> None:
        if not self._change.done():
            self._change.set_result(None)
