"""The acceptance of connections, and the answers to refused ones."""

import errno
import json
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Any

import pytest

from app.admission.counters import Counters, Total
from app.connections.descriptors import Spare, raise_limit
from app.connections.entrance import Entrance, Ticket
from app.connections.guard import Guard
from app.connections.limits import SPARE_DESCRIPTORS, ConnectionLimits
from app.connections.phases import Phase, Phases
from models.settings import Settings
from tests.connection import LIMITS
from tests.server import PATIENCE


@dataclass(eq=False)
class Held:
    """A connection that was taken."""

    phase: Phase
    client_key: str | None
    ticket: Ticket
    phases: Phases
    evicted: bool = False
    rate: float | None = None
    """The rate of its body, if that can be blamed for being slow."""
    sent: bool = False
    """Whether its client has sent something that was not read."""

    def body_rate(self, _now: float, _grace: float) -> float | None:
        return self.rate

    def evict(self) -> None:
        self.evicted = True
        self.ticket.leave()
        self.phases.leave(self)

    def sends(self) -> bool:
        return self.sent

    def expire(self, phase: Phase) -> None: ...

    def unsent(self) -> int:
        return 0

    def stalled(self) -> None: ...


@dataclass
class House:
    """An entrance, and the connections that came in."""

    guard: Guard
    entrance: Entrance
    counters: Counters
    ended: list[str]
    time: list[float]
    held: list[Held] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    def come(self, host: str, phase: Phase) -> dict[str, object] | None:
        """Connect a client that stays in `phase`; return the refusal, if any."""
        ours, theirs = socket.socketpair()
        self.stack.enter_context(theirs)
        ticket = self.entrance.enter(ours, host)
        if ticket is None:
            theirs.settimeout(PATIENCE)
            head, _, body = theirs.recv(10_000).partition(b"\r\n\r\n")
            assert b"retry-after: 5" in head
            assert b"connection: close" in head
            assert theirs.recv(1) == b""
            told: dict[str, object] = json.loads(body)
            return told
        self.stack.enter_context(ours)
        made = Held(phase, ticket.client, ticket, self.guard.phases)
        self.held.append(made)
        self.guard.phases.enter(made, phase)
        return None


def house(counters: Counters | None = None, **limits: Any) -> House:
    time, ended, counters = [100.0], list[str](), counters or Counters()
    guard = Guard(replace(LIMITS, **limits), ended.append, clock=lambda: time[0])
    return House(guard, Entrance(guard, counters), counters, ended, time)


@pytest.fixture
def few() -> Iterator[House]:
    made = house(connections=4, per_client=2)
    with made.stack:
        yield made
        made.entrance.end()


def test_a_client_with_as_many_busy_connections_as_it_may_have_is_429(few: House) -> None:
    assert few.come("192.0.2.1", Phase.ANSWER) is None
    assert few.come("192.0.2.1", Phase.ANSWER) is None
    told = few.come("192.0.2.1", Phase.ANSWER)
    assert told is not None
    assert (told["status"], told["code"]) == (429, "too_many_connections")
    assert "DARKROOM_MAX_CONNECTIONS_PER_CLIENT" in str(told["detail"])
    assert few.come("192.0.2.2", Phase.ANSWER) is None
    assert few.ended == ["too_many_connections"]


def test_a_server_with_as_many_busy_connections_as_it_may_have_is_503(few: House) -> None:
    for n in range(4):
        assert few.come(f"192.0.2.{n}", Phase.BODY) is None
    told = few.come("192.0.2.9", Phase.BODY)
    assert told is not None
    assert (told["status"], told["code"]) == (503, "connections_exhausted")
    assert few.counters.total(Total.CONNECTIONS) == 4
    few.held[0].ticket.leave()
    few.held[0].ticket.leave()
    assert few.counters.total(Total.CONNECTIONS) == 3
    assert few.come("192.0.2.9", Phase.BODY) is None


def test_a_slow_body_makes_room_before_connections_that_were_used(few: House) -> None:
    for n, phase in enumerate((Phase.KEPT, Phase.BODY, Phase.BODY, Phase.FRESH)):
        assert few.come(f"192.0.2.{n}", phase) is None
    few.held[1].rate, few.held[2].rate = 5.0, 3.0
    for n in range(4):
        assert few.come(f"192.0.2.{n + 4}", Phase.ANSWER) is None
        order = [2, 1, 3, 0]
        assert [each.evicted for each in few.held[:4]] == [i in order[: n + 1] for i in range(4)]


def test_the_oldest_connection_without_a_request_makes_room_first(few: House) -> None:
    phases = (Phase.KEPT, Phase.ONCE, Phase.FRESH, Phase.ANSWER)
    for n, phase in enumerate(phases):
        assert few.come(f"192.0.2.{n}", phase) is None
        few.time[0] += 1
    for n in range(3):
        assert few.come(f"192.0.2.{n + 4}", Phase.ANSWER) is None
        few.time[0] += 1
        if n == 1:
            assert [each.evicted for each in few.held[:4]] == [False, True, True, False]
    assert few.held[0].evicted
    assert few.come("192.0.2.9", Phase.ANSWER) is not None


def test_a_new_connection_is_not_closed_while_others_wait_between_two_requests(few: House) -> None:
    for n, phase in enumerate((Phase.FRESH, Phase.ONCE, Phase.KEPT)):
        few.come(f"192.0.2.{n}", phase)
    few.come("192.0.2.3", Phase.ANSWER)
    few.time[0] += 0.9
    assert few.come("192.0.2.4", Phase.ANSWER) is None
    assert [each.evicted for each in few.held[:3]] == [False, True, False]
    few.guard.phases.enter(few.held[0], Phase.FRESH)  # a newer one
    few.time[0] += 0.1
    assert few.come("192.0.2.5", Phase.ANSWER) is None
    assert [each.evicted for each in few.held[:3]] == [False, True, True]
    assert few.come("192.0.2.6", Phase.ANSWER) is None
    assert few.held[0].evicted


@pytest.mark.parametrize("phase", [Phase.FRESH, Phase.ONCE, Phase.KEPT])
def test_a_connection_whose_request_was_not_read_yet_makes_no_room(
    few: House, phase: Phase
) -> None:
    for n in range(4):
        few.come(f"192.0.2.{n}", phase)
        few.held[n].sent = n < 3
    few.time[0] += 5
    assert few.come("192.0.2.4", Phase.ANSWER) is None
    assert [each.evicted for each in few.held[:4]] == [False, False, False, True]
    assert few.come("192.0.2.5", Phase.ANSWER) is not None


def test_a_clients_own_idle_connection_makes_room_for_its_next_one(few: House) -> None:
    few.come("192.0.2.2", Phase.FRESH)
    few.come("192.0.2.1", Phase.KEPT)
    few.come("192.0.2.1", Phase.ANSWER)
    assert few.come("192.0.2.1", Phase.ANSWER) is None
    assert [each.evicted for each in few.held] == [False, True, False, False]


def test_at_both_limits_a_connection_of_the_same_client_makes_room(few: House) -> None:
    for host in ("192.0.2.2", "192.0.2.2", "192.0.2.1", "192.0.2.1"):
        few.come(host, Phase.KEPT)
    assert few.come("192.0.2.1", Phase.ANSWER) is None
    assert [each.evicted for each in few.held] == [False, False, True, False, False]
    assert few.come("192.0.2.3", Phase.ANSWER) is None
    assert few.held[0].evicted


def test_headers_that_have_just_begun_are_not_evicted_but_slow_ones_are(few: House) -> None:
    for _ in range(2):
        few.come("192.0.2.1", Phase.HEAD)
    assert few.come("192.0.2.1", Phase.FRESH) is not None
    few.time[0] += 3
    assert few.come("192.0.2.1", Phase.FRESH) is None


@pytest.mark.parametrize("phase", [Phase.LINGER, Phase.DISCARD])
def test_a_client_has_time_to_read_its_refusal_before_its_connection_makes_room(
    few: House, phase: Phase
) -> None:
    for _ in range(2):
        few.come("192.0.2.1", phase)
    assert few.come("192.0.2.1", Phase.FRESH) is not None
    few.time[0] += 1
    assert few.come("192.0.2.1", Phase.FRESH) is None


def test_answered_requests_whose_bodies_never_come_lock_no_other_client_out(few: House) -> None:
    for n in range(4):
        few.come(f"192.0.2.{n}", Phase.DISCARD)
    few.time[0] += 1
    for _ in range(2):
        assert few.come("192.0.2.9", Phase.ANSWER) is None
    assert [each.evicted for each in few.held[:4]] == [True, True, False, False]
    assert few.ended == []


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared counters need Linux")
def test_the_limits_are_those_of_all_front_ends_together() -> None:
    counters = Counters.create(2)
    assert counters.fd is not None
    both = [house(Counters.attach(counters.fd, 2), connections=4, per_client=2) for _ in range(2)]
    first, second = both
    with first.stack, second.stack:
        assert first.come("192.0.2.1", Phase.ANSWER) is None
        assert second.come("192.0.2.1", Phase.ANSWER) is None
        for each in both:
            told = each.come("192.0.2.1", Phase.ANSWER)
            assert told is not None
            assert told["code"] == "too_many_connections"
        assert first.come("192.0.2.2", Phase.ANSWER) is None
        assert second.come("192.0.2.3", Phase.ANSWER) is None
        told = second.come("192.0.2.4", Phase.ANSWER)
        assert told is not None
        assert told["code"] == "connections_exhausted"
        for each in both:
            each.entrance.end()
    counters.close()


def test_trusted_proxies_have_no_limit_of_their_own() -> None:
    made = house(connections=4, per_client=1, trusted=(ip_network("192.0.2.0/24"),))
    with made.stack:
        assert [made.come("192.0.2.1", Phase.ANSWER) for _ in range(4)] == [None] * 4
        assert made.come("192.0.2.1", Phase.ANSWER) is not None
        made.entrance.end()


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002::/64"),
        ("2001:db8:1:2:ffff::", "2001:0db8:0001:0002::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80:0000:0000:0000::/64"),
        ("", None),
    ],
)
def test_clients_are_counted_by_address_and_ipv6_networks(host: str, client: str | None) -> None:
    assert LIMITS.client(host) == client


def test_few_descriptors_leave_room_for_files_and_for_other_clients() -> None:
    settings = Settings(max_connections=4096, max_connections_per_client=4000)
    assert ConnectionLimits.of(settings, 1 << 16).connections == 4096
    small = ConnectionLimits.of(settings, 1024)
    assert small.connections == 1024 - SPARE_DESCRIPTORS
    assert small.per_client == small.connections * 3 // 4
    assert ConnectionLimits.of(settings, 10).connections > 0


def test_without_a_descriptor_clients_are_answered_at_the_second_try() -> None:
    made = house()
    error = OSError(errno.EMFILE, "too many open files")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        with socket.create_connection(listening.getsockname()) as client:
            client.settimeout(PATIENCE)
            select.select([listening], [], [], PATIENCE)
            assert not made.entrance.no_descriptor(listening, error)
            assert not made.entrance.no_descriptor(listening, error)
            assert client.recv(1000).startswith(b"HTTP/1.1 503")
            assert client.recv(1000) == b""
    assert made.ended == ["no_descriptor"] * 2
    made.entrance.end()


def test_without_a_descriptor_an_idle_connection_gives_up_its_own(few: House) -> None:
    few.come("192.0.2.1", Phase.FRESH)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        few.entrance.no_descriptor(listening, OSError(errno.ENFILE, "file table overflow"))
    assert few.held[0].evicted


def test_the_spare_descriptor_is_taken_again() -> None:
    spare = Spare()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for _ in range(2):
            with socket.create_connection(listening.getsockname()):
                taken = spare.accept(listening)
                assert taken is not None
                taken.close()
                spare.refill()
    spare.close()


def test_the_limit_of_open_files_is_the_hard_one() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        assert raise_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
