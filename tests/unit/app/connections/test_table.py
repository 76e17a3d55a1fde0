"""The number of connections, and which ones make room for others."""

import os
from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Any

import pytest

from app.admission.counters import Counters, Key, Total
from app.connections.protocol import (
    MOST_REFUSED,
    SPARE_DESCRIPTORS,
    ConnectionLimits,
    ConnectionTable,
    Phase,
    raise_limit,
)
from models.settings import Settings
from tests.connection import LIMITS, FakeTransport


@dataclass(eq=False)
class Held:
    """A connection that ends when the table says so."""

    transport: FakeTransport
    phase: Phase = Phase.IDLE
    client_key: Key | None = None
    expired: bool = False

    def expire(self) -> None:
        self.expired = True


class House:
    """A table for few connections, and the connections that came."""

    def __init__(self, counters: Counters | None = None, **limits: Any) -> None:
        self.time, self.ended, self.held = 100.0, list[str](), list[Any]()
        self.counters = counters or Counters()
        found = replace(LIMITS, **{"connections": 4, "per_client": 2} | limits)
        self.table = ConnectionTable(found, self.counters, self.ended.append, lambda: self.time)

    def come(self, client: int, phase: Phase = Phase.WORKING, unsent: int = 0) -> str:
        """Connect a client that stays in `phase`, and has `unsent` bytes of its answer to read;
        return the code of the refusal, if any.
        """
        made: Any = Held(FakeTransport(unsent=unsent))
        self.held.append(made)
        error = self.table.enter(made, f"192.0.2.{client}")
        if error is None:
            self.table.move(made, phase)
        return "" if error is None else error.code

    def evicted(self) -> list[int]:
        return [number for number, each in enumerate(self.held) if each.transport.aborted]


def test_busy_connections_are_limited_for_a_client_and_in_all() -> None:
    few = House()
    assert [few.come(1) for _ in range(3)] == ["", "", "too_many_connections"]
    assert [few.come(n) for n in (2, 3, 4)] == ["", "", "connections_exhausted"]
    assert few.ended == ["too_many_connections", "connections_exhausted"]
    few.table.leave(few.held[2])  # a refused connection was not counted
    assert few.counters.total(Total.CONNECTIONS) == 4
    few.table.leave(few.held[0])
    few.table.leave(few.held[0])
    assert few.counters.total(Total.CONNECTIONS) == 3
    assert few.come(4) == ""


def test_refused_connections_are_few() -> None:
    few = House()
    for n in range(4 + MOST_REFUSED + 1):
        few.come(n)
    assert [each.expired for each in few.held[3:6]] == [False, True, False]


@pytest.mark.parametrize(
    ("phases", "seconds", "order"),
    [
        ((Phase.WORKING, Phase.IDLE, Phase.IDLE, Phase.HEAD), 2.0, [1, 2]),
        ((Phase.IDLE, Phase.WORKING, Phase.ENDING, Phase.IDLE), 1.0, [2, 0, 3]),
        ((Phase.IDLE, Phase.WORKING, Phase.ENDING, Phase.IDLE), 0.5, [0, 3]),
    ],
)
def test_connections_make_room_in_order(
    phases: tuple[Phase, ...], seconds: float, order: list[int]
) -> None:
    few = House()
    for n, phase in enumerate(phases):
        few.come(n, phase)
    few.time += seconds
    for n in range(len(order)):
        assert few.come(n + 4) == ""
        assert few.evicted() == sorted(order[: n + 1])
    assert few.come(9) == "connections_exhausted"


def test_a_client_has_a_second_to_read_its_answer_before_its_connection_makes_room() -> None:
    few = House()
    for n in range(4):
        few.come(n, Phase.IDLE, unsent=3 - n)
    assert [few.come(4), few.come(5)] == ["", "connections_exhausted"]
    assert few.evicted() == [3]
    few.time += 1
    assert few.come(6) == ""
    assert few.evicted() == [0, 3]


def test_a_clients_own_idle_connection_makes_room_for_its_next_one() -> None:
    few = House()
    assert [few.come(client, Phase.IDLE) for client in (2, 2, 1, 1, 1)] == [""] * 5
    assert few.evicted() == [2]
    assert few.come(3) == ""
    assert few.evicted() == [0, 2]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared counters need Linux")
def test_the_limits_are_those_of_all_front_ends_together() -> None:
    counters = Counters.create(2)
    assert counters.fd is not None
    first, second = (House(Counters.attach(counters.fd, 2)) for _ in range(2))
    assert (first.come(1), second.come(1)) == ("", "")
    assert (first.come(1), second.come(1)) == ("too_many_connections",) * 2
    assert (first.come(2), second.come(3), second.come(4)) == ("", "", "connections_exhausted")
    counters.close()


def test_trusted_proxies_have_no_limit_of_their_own() -> None:
    made = House(per_client=1, trusted=(ip_network("192.0.2.0/24"),))
    assert [made.come(1) for _ in range(5)] == [*[""] * 4, "connections_exhausted"]


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", None),
    ],
)
def test_clients_are_counted_by_address_and_ipv6_networks(host: str, client: str | None) -> None:
    assert LIMITS.client(host) == client


def test_few_descriptors_leave_room_for_files_and_for_other_clients() -> None:
    settings = Settings(max_connections=4096)
    assert ConnectionLimits.of(settings, 1 << 16).connections == 4096
    small = ConnectionLimits.of(settings, 1024)
    assert small.connections == 1024 - SPARE_DESCRIPTORS
    assert small.per_client == small.connections * 3 // 4
    assert ConnectionLimits.of(settings, 10).connections > 0


def test_the_limit_of_open_files_is_the_hard_one() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        assert raise_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
