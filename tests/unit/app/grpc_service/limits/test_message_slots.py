"""How many messages may arrive at the same time."""

import pytest

from app.grpc_service.limits.message_slots import COPIES, FEWEST, message_slots


@pytest.mark.parametrize(
    ("largest", "memory", "slots"),
    [(8 << 20, 256 << 20, 32 // COPIES), (8 << 20, 128 << 20, 8), (1 << 30, 256 << 20, FEWEST)],
)
def test_the_slots_times_the_copies_of_the_largest_message_are_the_memory(
    largest: int, memory: int, slots: int
) -> None:
    found = message_slots(largest, memory)
    assert sum(found.take_now(f"client {n}") for n in range(99)) == slots


def test_one_client_holds_half_of_the_slots() -> None:
    slots = message_slots(1, COPIES * 8)
    assert [slots.take_now("a") for _ in range(5)] == [True] * 4 + [False]
    assert slots.take_now("b")
