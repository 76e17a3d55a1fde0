"""The turn of one image in the fair line."""

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol

from app.admission.line.places import Place, Share
from models.domain.deadline import Deadline


class Line(Protocol):
    """Where images wait for their turn."""

    async def take(
        self,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        share: Callable[[], Share],
        measured: Callable[[], float],
        group: Callable[[], Hashable] | None,
    ) -> Place:
        """Wait for a turn."""

    def leave(self, place: Place) -> None:
        """End a turn."""

    def suspend(self, place: Place) -> None:
        """Give a turn to others for a while."""

    def resume(self, place: Place) -> None:
        """Begin a turn again that was left for a while."""


class Turn:
    """One turn as an asynchronous context manager; it is no generator because those are slower."""

    __slots__ = ("_asked", "_line", "_place")

    def __init__(
        self,
        line: Line,
        client: str,
        estimate: Callable[[], float],
        deadline: Deadline,
        share: Callable[[], Share],
        measured: Callable[[], float],
        group: Callable[[], Hashable] | None,
    ) -> None:
        self._line = line
        self._asked = client, estimate, deadline, share, measured, group
        self._place: Place | None = None

    async def take(self) -> None:
        """Wait for a place; raises Overloaded if it would come too late."""
        self._place = await self._line.take(*self._asked)

    __aenter__ = take

    def leave(self) -> None:
        """Give the place to other images for good; the image may take another one later."""
        place, self._place = self._place, None
        if place is not None:
            self._line.leave(place)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    @asynccontextmanager
    async def left(self) -> AsyncIterator[None]:
        """Let other images have this turn while the block waits for something that is scarcer."""
        place = self._place
        assert place is not None
        self._line.suspend(place)
        try:
            yield
        finally:
            self._line.resume(place)
