"""The number of connections, and which ones make room for others."""

import os
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

import pytest

from app.admission.counters import Counters, Key, Total
from app.connections.limits import SPARE_DESCRIPTORS, ConnectionLimits, raise_limit
from app.connections.table import MOST_REFUSED, ConnectionTable, Phase
from models.domain.errors import ServiceError
from models.settings import Settings
from tests.connection import LIMITS


@dataclass(eq=False)
class Held:
    """A connection."""

    phase: Phase = Phase.IDLE
    client_key: Key | None = None
    evicted: bool = False
    expired: bool = False
    sent: bool = False
    """Whether its client has sent something that was not read."""

    def evict(self) -> None:
        self.evicted = True

    def expire(self, _phase: Phase) -> None:
        self.expired = True

    def sends(self) -> bool:
        return self.sent

    def look(self) -> None: ...


@dataclass
class House:
    """A table, and the connections that came."""

    table: ConnectionTable
    counters: Counters
    ended: list[str]
    time: list[float]
    held: list[Held] = field(default_factory=list)

    def come(self, host: str, phase: Phase) -> ServiceError | None:
        """Connect a client that stays in `phase`; return the refusal, if any."""
        made = Held()
        error = self.table.enter(made, host)
        self.held.append(made)
        if error is None:
            self.table.move(made, phase)
        return error

    def evicted(self) -> list[int]:
        return [number for number, each in enumerate(self.held) if each.evicted]


def house(counters: Counters | None = None, **limits: Any) -> House:
    time, ended, counters = [100.0], list[str](), counters or Counters()
    table = ConnectionTable(replace(LIMITS, **limits), counters, ended.append, lambda: time[0])
    return House(table, counters, ended, time)


@pytest.fixture
def few() -> House:
    return house(connections=4, per_client=2)


def test_a_client_with_as_many_busy_connections_as_it_may_have_is_429(few: House) -> None:
    assert few.come("192.0.2.1", Phase.WORKING) is None
    assert few.come("192.0.2.1", Phase.WORKING) is None
    error = few.come("192.0.2.1", Phase.WORKING)
    assert error is not None
    assert (error.status, error.code) == (429, "too_many_connections")
    assert "as many as one client may have" in error.detail
    assert few.come("192.0.2.2", Phase.WORKING) is None
    assert few.ended == ["too_many_connections"]


def test_a_server_with_as_many_busy_connections_as_it_may_have_is_503(few: House) -> None:
    for n in range(4):
        assert few.come(f"192.0.2.{n}", Phase.WORKING) is None
    error = few.come("192.0.2.9", Phase.WORKING)
    assert error is not None
    assert (error.status, error.code) == (503, "connections_exhausted")
    few.table.leave(few.held[4])  # the refused one was not counted
    assert few.counters.total(Total.CONNECTIONS) == 4
    few.table.leave(few.held[0])
    few.table.leave(few.held[0])
    assert few.counters.total(Total.CONNECTIONS) == 3
    assert few.come("192.0.2.9", Phase.WORKING) is None


def test_refused_connections_are_few(few: House) -> None:
    for n in range(4 + MOST_REFUSED + 1):
        few.come(f"192.0.2.{n}", Phase.WORKING)
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
    few: House, phases: tuple[Phase, ...], seconds: float, order: list[int]
) -> None:
    for n, phase in enumerate(phases):
        assert few.come(f"192.0.2.{n}", phase) is None
    few.time[0] += seconds
    for n in range(len(order)):
        assert few.come(f"192.0.2.{n + 4}", Phase.WORKING) is None
        assert few.evicted() == sorted(order[: n + 1])
    assert few.come("192.0.2.9", Phase.WORKING) is not None


def test_a_connection_whose_request_was_not_read_yet_makes_no_room(few: House) -> None:
    for n in range(4):
        few.come(f"192.0.2.{n}", Phase.IDLE)
        few.held[n].sent = n < 3
    few.time[0] += 5
    assert few.come("192.0.2.4", Phase.WORKING) is None
    assert few.evicted() == [3]
    assert few.come("192.0.2.5", Phase.WORKING) is not None


def test_a_clients_own_idle_connection_makes_room_for_its_next_one(few: House) -> None:
    for host in ("192.0.2.2", "192.0.2.2", "192.0.2.1", "192.0.2.1"):
        few.come(host, Phase.IDLE)
    assert few.come("192.0.2.1", Phase.WORKING) is None
    assert few.evicted() == [2]
    assert few.come("192.0.2.3", Phase.WORKING) is None
    assert few.evicted() == [0, 2]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared counters need Linux")
def test_the_limits_are_those_of_all_front_ends_together() -> None:
    counters = Counters.create(2)
    assert counters.fd is not None
    first, second = (
        house(Counters.attach(counters.fd, 2), connections=4, per_client=2) for _ in range(2)
    )
    assert first.come("192.0.2.1", Phase.WORKING) is None
    assert second.come("192.0.2.1", Phase.WORKING) is None
    for each in (first, second):
        error = each.come("192.0.2.1", Phase.WORKING)
        assert error is not None
        assert error.code == "too_many_connections"
    assert first.come("192.0.2.2", Phase.WORKING) is None
    assert second.come("192.0.2.3", Phase.WORKING) is None
    error = second.come("192.0.2.4", Phase.WORKING)
    assert error is not None
    assert error.code == "connections_exhausted"
    counters.close()


def test_trusted_proxies_have_no_limit_of_their_own() -> None:
    made = house(connections=4, per_client=1, trusted=(ip_network("192.0.2.0/24"),))
    assert [made.come("192.0.2.1", Phase.WORKING) for _ in range(4)] == [None] * 4
    assert made.come("192.0.2.1", Phase.WORKING) is not None


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
