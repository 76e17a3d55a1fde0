"""One image that waits in line, and its rank among those of its client."""

import asyncio
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from app.admission.line.places import Place, Share
from models.domain.deadline import Deadline

LEAST_COST = 1e-6
"""Lowest cost in seconds: images of unknown cost take turns by their number."""


def rounded(cost: float) -> float:
    """Round a cost up to a power of two, so that noise does not change the order of equals."""
    _, exponent = math.frexp(max(cost, LEAST_COST))
    return math.ldexp(1.0, exponent)


@dataclass(slots=True)
class Group:
    """Images of one kind and size: how many of them wait, and the highest rank of any of them.

    The estimate of their cost changes from image to image, and may cross a power of two each time.
    """

    live: int = 0
    rank: float = 0.0


@dataclass(slots=True, eq=False)
class Waiting:
    """An image in line; `place` is set together with the result of `turn`.

    `measured` returns its cost in seconds as far as that was measured: an image of an unknown kind
    goes early, because its kind is known from then on. `came` is the virtual time of its client
    when it came, `rank` that plus its rounded cost.
    """

    number: int
    estimate: Callable[[], float]
    deadline: Deadline
    share: Callable[[], Share]
    measured: Callable[[], float]
    group: Hashable
    """What images have in common that cost the same: their kind and size."""
    cost: float = 0.0
    """Seconds, as estimated when it came."""
    overdue_at: float = math.inf
    came: float = 0.0
    rank: float = 0.0
    peers: Group = field(default_factory=Group)
    """All of its group that wait."""
    place: Place | None = None
    gone: bool = False
    """Whether its request ended while it waited."""
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def ranked_again(self) -> bool:
        """Set the rank by the present estimate if that is higher; return whether it was set.

        It is never below that of an image of the same group that came before.
        """
        rank = max(self.came + rounded(self.measured()), self.peers.rank)
        higher = rank > self.rank
        if higher:
            self.rank = self.peers.rank = rank
        return higher
