"""What a body may weigh, with its length announced or not."""

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message

from app.admission import Admission, Amount, Limits, Permit
from app.admission.counters import Total
from app.intake.body import announced, counted
from models.domain.errors import Overloaded, TooLarge


def door() -> Admission:
    return Admission(Limits(images=8, bytes=1 << 20, arriving=1 << 20))


def read(chunks: Sequence[bytes], permit: Permit, most: int, expected: int = 0) -> int:
    """Return the bytes read until the body ends; its last message is empty, as servers' may be."""
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks
    ]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def scenario() -> int:
        size, bounded = 0, counted(receive, permit, expected, most)
        while (message := await bounded())["type"] == "http.request":
            size += len(message["body"])
        return size

    return asyncio.run(scenario())


@pytest.mark.parametrize(("headers", "size"), [([], 0), ([(b"content-length", b"12")], 12)])
def test_a_body_is_as_long_as_its_header_says(
    headers: list[tuple[bytes, bytes]], size: int
) -> None:
    assert announced({"type": "http", "headers": headers}) == size


def test_a_body_counts_as_arriving_until_it_is_complete_and_then_as_one_image() -> None:
    admission = door()
    with admission.enter() as permit:
        permit.arrives(40, 0)
        assert admission.held == Amount(0, 0)
        assert admission.counters.total(Total.ARRIVING) >= 40
        permit.complete(10)
        assert admission.held == Amount(1, 50)
        assert admission.counters.total(Total.ARRIVING) == 0
    assert admission.held == Amount(0, 0)


def test_a_body_is_read_to_its_end_and_counted_with_every_byte() -> None:
    admission = door()
    with admission.enter() as permit:
        assert read([bytes(30), bytes(10)], permit, 50) == 40
        assert admission.held == Amount(1, 40)


def test_bytes_that_are_announced_and_do_not_come_keep_nobody_out() -> None:
    admission = door()
    idle = [admission.enter() for _ in range(8)]
    for permit in idle:
        permit.arrives(1, 1 << 20)
    with admission.enter() as permit:
        assert read([bytes(1000)], permit, 1 << 20) == 1000
    for permit in idle:
        permit.release()
    assert admission.counters.total(Total.ARRIVING) == 0


def test_a_body_is_charged_its_bytes_and_at_most_twice_them_or_what_was_announced() -> None:
    admission = door()
    with admission.enter() as permit:
        for chunk in [1, 70_000, 70_000, 200_000]:
            permit.arrives(chunk, 400_000)
        assert 340_001 <= admission.counters.total(Total.ARRIVING) <= 400_000


def test_one_byte_over_the_limit_is_too_large_and_the_error_names_limit_and_setting() -> None:
    with door().enter() as permit:
        assert read([bytes(50)], permit, 50) == 50
    with (
        door().enter() as permit,
        pytest.raises(TooLarge, match=r"takes 50 \(DARKROOM_MAX_BODY_BYTES\)"),
    ):
        read([bytes(50), b"x"], permit, 50)


def test_a_body_that_does_not_fit_beside_others_is_shed_while_it_comes() -> None:
    admission = door()
    other = admission.enter("10.0.0.1")
    other.arrives(900_000, 900_000)
    with admission.enter("10.0.0.2") as permit, pytest.raises(Overloaded) as refused:
        read([bytes(100_000), bytes(100_000)], permit, 1 << 20)
    assert refused.value.reason == "arriving_bytes"
    other.release()
    assert admission.counters.total(Total.ARRIVING) == 0
