"""Refuse images in line whose turn is predicted to come too late for their deadlines."""

from collections.abc import Callable, Iterable

from app.admission.line.client_queue import ClientQueue
from app.admission.line.waiting import Waiting
from models.domain.errors import Overloaded

SLACK = 1.15
"""Times the predicted wait that must fit before the deadline of an image whose turn comes soon: it
would be begun in vain otherwise."""

EVERY = 0.25
"""Seconds between two searches for images whose turn comes too late."""

SOON = 2 * EVERY
"""Seconds within which a turn comes soon: there may be no other search before it."""

FAR = 0.9
"""The same part of a wait from `SOON` on. The image was let in with a margin, so if it seems late
now, costs or capacity were estimated a little wrongly, then or now, and the next estimate may show
that it is in time. Nothing is lost while it waits. A client that was let in must not be refused
because of noise."""

Tagged = tuple[float, int, ClientQueue]
"""A client in line: the virtual time at which its next image starts, and that image's number."""


def shed(
    clients: Iterable[Tagged], past: float, predict: Callable[[float], float], now: float
) -> None:
    """Refuse images that will be too late, if `past` seconds of work precede those that wait."""
    for each, cost in _in_order(clients, now):
        wait = predict(past + cost)
        needed = wait * (SLACK if wait < SOON else FAR)
        if needed > each.deadline.remaining(now):
            each.turn.set_exception(_too_late(wait))
        else:
            past += cost


def _in_order(clients: Iterable[Tagged], now: float) -> list[tuple[Waiting, float]]:
    """Return the images in the order in which they will be let through, with their costs."""
    tagged: list[tuple[float, int, Waiting, float]] = []
    for start, _, queue in clients:
        tag = start
        for each in queue.in_order(now):
            cost = each.estimate()
            tagged.append((tag, each.number, each, cost))
            tag += cost
    return [(each, cost) for _, _, each, cost in sorted(tagged, key=lambda each: each[:2])]


def _too_late(wait: float) -> Overloaded:
    return Overloaded(
        f"the work before this image takes about {wait:.1f} seconds, longer than its deadline "
        "allows; try again later",
        retry_after=wait,
        reason="deadline",
    )
