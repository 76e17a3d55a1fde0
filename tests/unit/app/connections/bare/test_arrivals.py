"""How many connections are begun or refused in one turn of the event loop."""

import asyncio
import socket

import pytest

from app.admission.counters import Counters
from app.connections.bare.arrivals import BEGUN_AT_ONCE, REFUSAL, Arrivals
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


def test_health_checks_are_begun_first_then_requests_without_a_body_then_others() -> None:
    begun: list[str] = []

    def begin(_connection: socket.socket, ticket: Ticket, _begin: object, _data: bytes) -> bool:
        begun.append(ticket.host)
        return True

    async def scenario() -> None:
        arrivals = Arrivals(begin)
        with socket.socket() as connection:
            for first in (*[b"POST /classify"] * (BEGUN_AT_ONCE + 1), b"GET / HTTP", b"GET /livez"):
                ticket = Ticket(Counters(), None, None, first.decode())
                arrivals.add(first, connection, ticket, lambda: None)
            await asyncio.sleep(0)
            arrivals.end()
        assert begun[BEGUN_AT_ONCE:] == ["GET /livez", "GET / HTTP", "POST /classify"]

    asyncio.run(scenario())
