"""What a client sends before it acknowledges the settings of the server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.grpc_service.limits.first_frames import MOST_EARLY, PREFACE, FirstFrames
from tests.http2_streams import ACK, DATA, HEADERS, SETTINGS, frame

OPENING = PREFACE + frame(SETTINGS, 0, 0, bytes(6))
CALL = frame(HEADERS, 4, 1, b"one") + frame(DATA, 1, 1, b"two")
ACKNOWLEDGED = frame(SETTINGS, ACK, 0)


@given(st.lists(st.integers(1, 40), min_size=1))
def test_the_acknowledgement_comes_first_however_bytes_arrive(sizes: list[int]) -> None:
    whole = OPENING + CALL + ACKNOWLEDGED + CALL
    first, place = FirstFrames(), 0
    for size in [*sizes, len(whole)]:
        first.add(whole[place : place + size])
        place += size
        assert first.opening == (OPENING if place >= len(OPENING) else b"")
    assert first.acknowledged
    assert first.rest() == ACKNOWLEDGED + CALL + CALL


def test_without_an_acknowledgement_few_bytes_are_taken() -> None:
    first = FirstFrames()
    first.add(OPENING)
    for _ in range(MOST_EARLY // 1024):
        first.add(frame(DATA, 0, 1, bytes(1024 - 9 - 1)))
    with pytest.raises(ValueError, match="acknowledged"):
        first.add(frame(DATA, 0, 1, bytes(1024)))
    assert not first.acknowledged


@pytest.mark.parametrize(
    "given",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE[:-1] + b"x",
        PREFACE + CALL,
        PREFACE + ACKNOWLEDGED,
        PREFACE + frame(SETTINGS, 0, 0, bytes(2000)),
    ],
    ids=["http1", "preface", "call", "acknowledgement", "long"],
)
def test_what_no_client_sends_first_is_refused(given: bytes) -> None:
    with pytest.raises(ValueError, match=r"client|frame"):
        FirstFrames().add(given)
