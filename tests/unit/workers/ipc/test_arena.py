import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ipc.arena import LARGE, PAGE, Arena, ArenaAllocator, ArenaSlot


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(4 * LARGE)
    yield made
    made.close()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9 * PAGE)), max_size=80))
def test_slots_never_overlap_and_all_room_comes_back(steps: list[tuple[bool, int]]) -> None:
    room, taken = ArenaAllocator(40 * PAGE), list[ArenaSlot]()
    for take, number in steps:
        if take and (slot := room.take(number)) is not None:
            assert slot.size >= number
            assert slot.offset + slot.size <= room.size
            assert all(
                slot.offset + slot.size <= t.offset or t.offset + t.size <= slot.offset
                for t in taken
            )
            taken.append(slot)
        elif not take and taken:
            room.give_back(taken.pop(number % len(taken)))
    for slot in taken:
        room.give_back(slot)
    assert room.take(room.size) == ArenaSlot(0, room.size)


def test_an_image_beyond_its_slot_is_refused(arena: Arena) -> None:
    for slot, shape in [
        (ArenaSlot(0, PAGE), (PAGE, 1, 3)),
        (ArenaSlot(4 * LARGE, PAGE), (1, 1, 1)),
        (ArenaSlot(-PAGE, PAGE), (1, 1, 1)),
        (ArenaSlot(0, PAGE), (-1, -1, 1)),
        (ArenaSlot(0, PAGE), (0, 1, 1)),
    ]:
        with pytest.raises(ValueError, match="no image"):
            arena.pixels(slot, shape)


def test_a_large_slot_that_is_forgotten_gives_back_the_memory_that_no_device_may_read(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.ipc.arena.KEPT", LARGE)
    slot = ArenaSlot(0, 2 * LARGE)
    arena.pixels(slot, (2 * LARGE, 1, 1))[:] = 7
    assert os.fstat(arena.fd).st_blocks * 512 >= 2 * LARGE
    assert arena.kept[1] == LARGE
    arena.forget(slot)
    assert os.fstat(arena.fd).st_blocks * 512 == LARGE
    left = arena.pixels(slot, (2 * LARGE, 1, 1)).ravel()
    assert left[:LARGE].all()
    assert not left[LARGE:].any()
