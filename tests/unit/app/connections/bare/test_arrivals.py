"""How many connections are begun or refused in one turn of the event loop."""

import asyncio
import socket

import pytest

from app.admission.counts.counters import Counters
from app.connections.bare.arrivals import BEGUN_AT_ONCE, OTHERS, REFUSAL, Arrivals
from app.connections.entrance import Ticket


@pytest.mark.parametrize(
    ("begins", "most"), [(True, BEGUN_AT_ONCE), (False, BEGUN_AT_ONCE / REFUSAL)]
)
def test_more_requests_are_refused_than_begun_in_a_turn(begins: bool, most: float) -> None:
    handled = 0

    def begin(*_: object) -> bool:
        nonlocal handled
        handled += 1
        return begins

    async def scenario() -> None:
        arrivals, ticket = Arrivals(begin), Ticket(Counters(), None, None)
        with socket.socket() as connection:
            for _ in range(500):
                arrivals.add(b"P", connection, ticket, lambda: None)
            assert most <= handled <= most + 1
            await asyncio.sleep(0)
            assert 2 * most <= handled <= 2 * (most + 1)
            arrivals.end()

    asyncio.run(scenario())


def test_a_flood_of_requests_without_a_body_leaves_a_part_of_each_turn_to_uploads() -> None:
    begun: list[socket.socket] = []

    def begin(connection: socket.socket, *_: object) -> bool:
        begun.append(connection)
        return True

    async def scenario() -> None:
        arrivals, ticket = Arrivals(begin), Ticket(Counters(), None, None)
        with socket.socket() as check, socket.socket() as upload:
            for _ in range(2):  # more than two turns take
                for _ in range(2 * BEGUN_AT_ONCE):
                    arrivals.add(b"G", check, ticket, lambda: None)
                for _ in range(OTHERS):
                    arrivals.add(b"P", upload, ticket, lambda: None)
            assert upload not in begun
            await asyncio.sleep(0)
            assert begun[BEGUN_AT_ONCE:].count(upload) == OTHERS * 2
            assert begun[BEGUN_AT_ONCE : BEGUN_AT_ONCE + OTHERS].count(upload) == 1
            arrivals.end()

    asyncio.run(scenario())
