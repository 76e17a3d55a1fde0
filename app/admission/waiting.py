"""Images that wait in line, by client, and what an image takes when it is past the line."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from models.domain.deadline import Deadline


def never() -> bool:
    """Say of an image that it is not bulk."""
    return False


@dataclass(frozen=True, slots=True)
class Place:
    """What an image past the line takes there: its cost in seconds, and a place for bulk or not."""

    cost: float
    bulk: bool


@dataclass(slots=True, eq=False)
class Waiting:
    """An image in line; `place` is set together with the result of `turn`."""

    number: int
    estimate: Callable[[], float]
    deadline: Deadline
    is_bulk: Callable[[], bool]
    place: Place | None = None
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class ClientQueue:
    """The images of one client in the order of asking.

    `start` is the virtual time at which the first of them starts, `finish` the one at which the
    last image that was let through ends.
    """

    images: deque[Waiting] = field(default_factory=deque)
    start: float = 0.0
    finish: float = 0.0
