"""JSON bodies on their way in: bounded together, and small ones never kept out by a large one."""

import mmap
from contextlib import ExitStack

import pytest

from app.parsing.arriving import SMALL, ArrivingJson, JsonRoom
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
        with ArrivingJson(JsonRoom()) as body:
            data = bytes(n % 251 for n in range(1000)) * (size // 1000 + 1)
            for start in range(0, size, 300_001):
                body.write(data[start : min(size, start + 300_001)])
            text = body.text()
        assert len(text) == size
        assert text[:] == data[:size]


def test_a_large_body_lies_in_memory_of_its_own_and_is_read_as_any_other() -> None:
    digits = b"QUJD" * SMALL
    with ArrivingJson(JsonRoom()) as body:
        body.write(b'{"images":[{"data":"data:image/png;base64,' + digits + b'"}]}')
        text = body.text()
        assert isinstance(text, mmap.mmap)
        (span,) = cut(text, Bounds()).spans.values()
        uri = DataUri(text, *span)
        assert uri.size == 3 * SMALL
        assert b"".join(uri.pieces()) == b"ABC" * SMALL


def test_several_large_bodies_fit_the_room_and_one_more_is_refused() -> None:
    room = JsonRoom(LIMIT)
    with ExitStack() as held:
        for _ in range(2):
            grown(held.enter_context(ArrivingJson(room)), LIMIT // 2)
        with pytest.raises(Overloaded), ArrivingJson(room) as third:
            grown(third, LIMIT // 2)
        assert room.bodies == 2
    assert (room.bodies, room.held) == (0, 0)


def test_one_large_body_alone_may_be_larger_than_the_room() -> None:
    room = JsonRoom(LIMIT)
    with ArrivingJson(room) as body:
        assert len(grown(body, 2 * LIMIT).text()) == 2 * LIMIT
    assert room.held == 0


def test_the_largest_body_does_not_keep_smaller_ones_out() -> None:
    room = JsonRoom(LIMIT)
    with ArrivingJson(room) as largest, ArrivingJson(room) as other:
        grown(largest, 2 * LIMIT)
        grown(other, LIMIT // 16)
        with pytest.raises(Overloaded):
            grown(other, SMALL)


def test_small_bodies_are_not_counted() -> None:
    room = JsonRoom(0)
    with ArrivingJson(room) as first, ArrivingJson(room) as second:
        for body in (first, second):
            body.write(b"[" * SMALL)
        assert (room.bodies, room.held) == (0, 0)
