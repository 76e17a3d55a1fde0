"""What a client has left behind is discarded in few steps, and a client that stays is watched."""

import itertools
import socket
from collections.abc import Iterable, Iterator
from typing import cast

import pytest

from app.admission.counters import Counters
from app.connections.bare.discarded_connection import (
    ROOM,
    STEPS,
    DiscardedConnection,
    Watched,
)
from app.connections.entrance import Ticket

LEFT = 64 << 20


class Kernel:
    """A socket that has pieces of these sizes; 0 is the end, and None that nothing has come."""

    def __init__(self, pieces: Iterable[int | None]) -> None:
        self.pieces: Iterator[int | None] = iter(pieces)
        self.steps = 0
        self.wakes_at: list[int] = []

    def recv_into(self, _memory: memoryview, _most: int, _flags: int) -> int:
        self.steps += 1
        size = next(self.pieces, None)
        if size is None:
            raise BlockingIOError
        return size

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.wakes_at.append(value)


class Owner:
    """The connections of a server; `closed` are those that were closed."""

    def __init__(self) -> None:
        self.closed: list[Watched] = []

    def close(self, watched: Watched, reason: str | None = None) -> None:
        assert reason is None
        self.closed.append(watched)

    def remove(self, watched: Watched) -> None:
        raise AssertionError(f"{watched} is not kept")


def discarded(kernel: Kernel, left: int = LEFT) -> tuple[DiscardedConnection, Owner]:
    owner, ticket = Owner(), Ticket(Counters(), None, None)
    connection = cast(socket.socket, kernel)
    return DiscardedConnection(owner, connection, ticket, left, None), owner


def test_all_that_a_client_left_behind_is_discarded_in_one_turn() -> None:
    kernel = Kernel([65_536, 359_464, 0])
    connection, owner = discarded(kernel)
    connection.drain()
    assert owner.closed == [connection]
    assert kernel.wakes_at == [ROOM]


@pytest.mark.parametrize("came", [[], [65_536], [65_536, 1]])
def test_a_client_that_stays_wakes_the_server_with_its_next_byte(came: list[int]) -> None:
    kernel = Kernel(came)
    connection, owner = discarded(kernel)
    connection.drain()
    assert not owner.closed
    assert kernel.wakes_at == [ROOM, 1]


def test_a_client_that_never_stops_sending_takes_a_few_steps_of_a_turn() -> None:
    kernel = Kernel(itertools.repeat(1000))
    connection, owner = discarded(kernel)
    connection.drain()
    assert kernel.steps == STEPS
    assert kernel.wakes_at == [ROOM, 1]
    assert not owner.closed


def test_no_more_is_discarded_than_a_client_may_send() -> None:
    kernel = Kernel(itertools.repeat(1000))
    connection, owner = discarded(kernel, left=2000)
    connection.drain()
    assert kernel.steps == 2
    assert owner.closed == [connection]
