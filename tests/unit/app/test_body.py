"""What a body may weigh, with its length announced or not."""

import asyncio
from collections.abc import Sequence

import pytest
from fastapi import Request
from starlette.types import Message

from app.admission import Admission, Amount, Permit
from app.body import announced, unannounced
from models.errors import Overloaded, TooLarge


def door() -> Admission:
    return Admission(max_images=8, max_bytes=100, service_rate=lambda: 10.0)


def read(chunks: Sequence[bytes], permit: Permit, most: int) -> int:
    """Bytes read until the body ends."""
    messages = [{"type": "http.request", "body": chunk} for chunk in chunks]

    async def receive() -> Message:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def scenario() -> int:
        size, bounded = 0, unannounced(receive, permit, most)
        while (message := await bounded())["type"] == "http.request":
            size += len(message["body"])
        return size

    return asyncio.run(scenario())


@pytest.mark.parametrize(("headers", "size"), [([], 0), ([(b"content-length", b"12")], 12)])
def test_a_body_is_as_long_as_its_header_says(
    headers: list[tuple[bytes, bytes]], size: int
) -> None:
    assert announced(Request({"type": "http", "headers": headers})) == size


def test_a_permit_grows_with_the_chunks_of_a_body_that_nobody_announced() -> None:
    admission = door()
    with admission.admit(1, 0) as permit:
        assert read([bytes(30), bytes(10)], permit, 50) == 40
        assert admission.held == Amount(1, 40)
    assert admission.held == Amount(0, 0)


def test_one_byte_over_the_limit_is_too_large_and_the_error_names_limit_and_setting() -> None:
    with door().admit(1, 0) as permit:
        assert read([bytes(50)], permit, 50) == 50
        with pytest.raises(TooLarge, match=r"takes 50 \(DARKROOM_MAX_BODY_BYTES\)"):
            read([bytes(50), b"x"], permit, 50)


def test_a_body_that_does_not_fit_beside_others_is_shed_while_it_comes() -> None:
    admission = door()
    with admission.admit(1, 80), admission.admit(1, 0) as permit, pytest.raises(Overloaded):
        read([bytes(15), bytes(15)], permit, 50)
    assert admission.held == Amount(0, 0)
