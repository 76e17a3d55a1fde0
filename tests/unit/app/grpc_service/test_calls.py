"""The message of a call as the body of a request."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from app.grpc_service.calls import _receiving


async def messages(given: tuple[bytes, ...]) -> AsyncGenerator[bytes, None]:
    for each in given:
        yield each


def received(*given: bytes) -> Message:
    async def first() -> Message:
        return await _receiving(messages(given))()

    return asyncio.run(first())


def test_the_first_message_is_the_whole_body() -> None:
    for body in (b"", b"one"):
        found = received(body, b"two")
        assert found == {"type": "http.request", "body": body, "more_body": False}


def test_a_call_that_ends_without_a_message_is_a_client_that_left() -> None:
    assert received() == {"type": "http.disconnect"}
