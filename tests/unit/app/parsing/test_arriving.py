"""JSON bodies on their way in: bounded together, and small ones never kept out by large ones."""

import mmap
from contextlib import ExitStack
from itertools import count

import pytest

from app.parsing.arriving import SMALL, TINY, ArrivingJson, JsonRoom, RoomShare
from app.parsing.data_uri import DataUri
from app.parsing.structure import Bounds, cut
from models.domain.errors import Overloaded

LIMIT = 32 * SMALL


def grown(body: ArrivingJson, size: int) -> ArrivingJson:
    for _ in range(size // SMALL):
        body.write(b" " * SMALL)
    return body


def test_a_body_is_the_bytes_that_were_written() -> None:
    for size in (0, 1, SMALL, SMALL + 1, 9 * SMALL + 7):
        with ArrivingJson(JsonRoom().of("one")) as body:
            data = bytes(n % 251 for n in range(1000)) * (size // 1000 + 1)
            for start in range(0, size, 300_001):
                body.write(data[start : min(size, start + 300_001)])
            text = body.text()
        assert len(text) == size
        assert text[:] == data[:size]


def test_a_large_body_lies_in_memory_of_its_own_and_is_read_as_any_other() -> None:
    digits = b"QUJD" * SMALL
    with ArrivingJson(JsonRoom().of("one")) as body:
        body.write(b'{"images":[{"data":"data:image/png;base64,' + digits + b'"}]}')
        text = body.text()
        assert isinstance(text, mmap.mmap)
        (span,) = cut(text, Bounds()).spans.values()
        uri = DataUri(text, *span)
        assert b"".join(uri.pieces()) == b"ABC" * SMALL


def test_several_large_bodies_fit_the_room_and_one_more_is_refused() -> None:
    room = JsonRoom(LIMIT)
    with ExitStack() as held:
        for client in ("one", "two"):
            grown(held.enter_context(ArrivingJson(room.of(client))), LIMIT // 2)
        with pytest.raises(Overloaded), ArrivingJson(room.of("three")) as third:
            grown(third, LIMIT // 2)
        assert room.bodies == 2
    assert (room.bodies, room.held) == (0, 0)


def test_one_large_body_alone_may_be_larger_than_the_room() -> None:
    room = JsonRoom(LIMIT)
    with ArrivingJson(room.of("one")) as body:
        assert len(grown(body, 2 * LIMIT).text()) == 2 * LIMIT
    assert room.held == 0


@pytest.mark.parametrize("client", ["one", "two"])
def test_the_largest_body_does_not_keep_smaller_ones_out(client: str) -> None:
    room = JsonRoom(LIMIT)
    with ArrivingJson(room.of("one")) as largest, ArrivingJson(room.of(client)) as other:
        grown(largest, 2 * LIMIT)
        grown(other, LIMIT // 16)
        with pytest.raises(Overloaded):
            grown(other, SMALL)


def test_small_bodies_together_fill_the_room_of_all_and_leave_some_to_tiny_ones() -> None:
    room = JsonRoom(LIMIT)
    clients = (room.of(f"{number}") for number in count())
    with ExitStack() as held:
        for _ in range(2 * LIMIT // SMALL):
            grown(held.enter_context(ArrivingJson(next(clients))), SMALL)
        assert (room.bodies, room.held, room.small) == (0, 0, 2 * LIMIT)
        with ArrivingJson(next(clients)) as one_more, pytest.raises(Overloaded) as refused:
            one_more.write(b" " * (TINY + 1))
        assert refused.value.reason == "json_bytes"
        for _ in range(LIMIT // 8 // TINY):
            held.enter_context(ArrivingJson(next(clients))).write(b" " * TINY)
        with ArrivingJson(next(clients)) as one_more, pytest.raises(Overloaded):
            one_more.write(b" ")
    assert room == JsonRoom(LIMIT)


def bodies_of(room: JsonRoom, client: str, size: int, held: ExitStack) -> int:
    """Hold bodies of a client until one is refused; return how many there are."""
    for number in count():
        body = held.enter_context(ArrivingJson(room.of(client)))
        try:
            for start in range(0, size, SMALL):
                body.write(b" " * min(SMALL, size - start))
        except Overloaded:
            return number
    raise AssertionError("unreachable: the room has a limit")


@pytest.mark.parametrize(
    ("size", "most"),
    [(SMALL // 2, 3 * 2 * LIMIT // 4), (LIMIT // 16, LIMIT * 3 // 2), (LIMIT // 8, LIMIT * 3 // 4)],
    ids=["small", "large", "larger than a sixteenth"],
)
def test_bodies_of_one_client_leave_room_for_those_of_others(size: int, most: int) -> None:
    room = JsonRoom(LIMIT)
    with ExitStack() as held:
        assert bodies_of(room, "one", size, held) == most // size
        assert bodies_of(room, "two", size, held) >= 1
    assert room == JsonRoom(LIMIT)


def test_a_client_with_one_body_has_all_that_is_free() -> None:
    room = JsonRoom(LIMIT)
    with ExitStack() as held:
        bodies_of(room, "one", SMALL, held)
        other = held.enter_context(ArrivingJson(room.of("two")))
        assert len(grown(other, LIMIT // 2).text()) == LIMIT // 2


def test_a_body_that_is_refused_when_it_becomes_large_frees_what_it_had() -> None:
    room = JsonRoom(LIMIT)
    with ArrivingJson(room.of("one")) as first, ArrivingJson(room.of("two")) as second:
        grown(first, LIMIT)
        for number in range(LIMIT // SMALL - 1):
            room.resize(f"{number}", 0, SMALL)
        grown(second, SMALL)
        for _ in range(2):
            with pytest.raises(Overloaded):
                second.write(b" ")
        assert (room.bodies, room.held, room.small) == (1, LIMIT, LIMIT)
    assert (room.bodies, room.held, room.small) == (0, 0, LIMIT - SMALL)


def test_a_share_of_the_room_goes_up_and_down() -> None:
    room = JsonRoom(LIMIT)
    with RoomShare(room.of("one")) as share:
        for size in (5, SMALL + 1, 7, 3 * SMALL):
            share.resize(size)
            large = size > SMALL
            assert (room.bodies, room.held, room.small) == (
                large,
                large * size,
                size - large * size,
            )
    assert room == JsonRoom(LIMIT)
