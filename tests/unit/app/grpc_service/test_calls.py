"""The message of a call as the body of a request."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.types import Message

from app.grpc_service.calls import _receiving
from app.grpc_service.server import is_fault


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


def test_what_clients_do_is_not_logged_as_a_fault() -> None:
    log = logging.getLogger("grpc._cython.cygrpc")
    assert is_fault in log.filters
    for text, expected in (
        ("Invalid encoding on %s", False),
        ("ExecuteBatchError raised in core by servicer method [%s]", False),
        ("Unexpected [%s] raised by servicer method", True),
    ):
        record = log.makeRecord(log.name, logging.ERROR, "", 0, text, ("a",), None)
        assert bool(log.filter(record)) is expected
