"""The slowest bodies end where too many arrive at once; fast ones are never counted."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from app.connections import slow_bodies as slow_bodies_module
from app.connections.slow_bodies import AT_LIMIT, AT_ONCE, GRACE, LOOKED_AT, SLOW, SlowBodies

if TYPE_CHECKING:
    from _collections_abc import dict_values

A, B = "192.0.2.1", "192.0.2.2"


@dataclass
class Body:
    """A connection on which a body arrives at `rate`, since `age` seconds."""

    rate: float
    client_key: str | None = A
    age: float = 10.0
    ended: list[str] = field(default_factory=list)

    def body_rate(self, _now: float, grace: float) -> float | None:
        return None if self.age <= grace else self.rate

    def shed(self) -> None:
        self.ended.append("refused")

    def evict(self) -> None:
        self.ended.append("closed")


def slow_bodies(bodies: list[Body], connections: int = 40, per_client: int = 16) -> SlowBodies:
    return SlowBodies(lambda: bodies, connections, per_client, lambda: 0.0)


def test_the_slowest_bodies_of_a_client_are_refused_beyond_a_quarter_of_its_connections() -> None:
    bodies = [Body(1000.0 + n) for n in range(10)]
    slow_bodies(bodies).sweep()
    assert [body.ended for body in bodies] == [["refused"]] * 6 + [[]] * 4


def test_the_slowest_bodies_of_all_are_refused_beyond_a_quarter_of_all_connections() -> None:
    bodies = [Body(1000.0 + n, f"192.0.2.{n}") for n in range(12)]
    slow_bodies(bodies).sweep()
    assert [body.ended for body in bodies] == [["refused"]] * 2 + [[]] * 10


def test_bodies_through_a_proxy_have_no_limit_for_one_client() -> None:
    bodies = [Body(1000.0, None) for _ in range(10)]
    slow_bodies(bodies).sweep()
    assert not any(body.ended for body in bodies)


@pytest.mark.parametrize("body", [Body(SLOW), Body(0.0, age=GRACE)])
def test_bodies_that_are_fast_or_new_are_left_alone(body: Body) -> None:
    bodies = [Body(body.rate, age=body.age) for _ in range(100)]
    slow_bodies(bodies).sweep()
    assert not any(each.ended for each in bodies)


def test_a_new_connection_takes_the_place_of_the_slowest_body_of_its_client() -> None:
    bodies = [Body(5.0), Body(3.0), Body(4.0), Body(1.0, B)]
    assert slow_bodies(bodies).make_room(A)
    assert [body.ended for body in bodies] == [[], ["closed"], [], []]


def test_a_new_connection_takes_the_place_of_any_slow_body_where_the_server_is_full() -> None:
    bodies = [Body(5.0), Body(1.0, B)]
    assert slow_bodies(bodies).make_room(None)
    assert [body.ended for body in bodies] == [[], ["closed"]]


@pytest.mark.parametrize("body", [Body(SLOW), Body(0.0, age=AT_LIMIT), Body(0.0, B)])
def test_fast_and_new_bodies_and_those_of_others_make_no_room(body: Body) -> None:
    assert not slow_bodies([body]).make_room(A)
    assert not body.ended


def test_a_new_connection_looks_at_few_bodies() -> None:
    bodies = [Body(2.0) for _ in range(LOOKED_AT)] + [Body(1.0)]
    assert slow_bodies(bodies).make_room(A)
    assert not bodies[-1].ended


def test_many_bodies_are_refused_over_several_turns_of_the_event_loop() -> None:
    async def test() -> None:
        bodies = [Body(1000.0) for _ in range(4 + 2 * AT_ONCE)]
        slow_bodies(bodies).sweep()
        for turn in (1, 2):
            assert sum(bool(body.ended) for body in bodies) == turn * AT_ONCE
            await asyncio.sleep(0)

    asyncio.run(test())


class Watched(Counter[str | None]):
    """A counter that counts its clients whenever all of them are looked at."""

    looked_at = 0

    def values(self) -> "dict_values[str | None, int]":
        Watched.looked_at += len(self)
        return super().values()


def test_a_sweep_does_not_look_at_all_clients_for_each_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_bodies_module, "Counter", Watched)
    monkeypatch.setattr(Watched, "looked_at", 0)
    bodies = [Body(1000.0, f"client {n}") for n in range(200)]
    slow_bodies(bodies, connections=1000).sweep()
    assert not any(body.ended for body in bodies)
    assert Watched.looked_at <= len(bodies)
