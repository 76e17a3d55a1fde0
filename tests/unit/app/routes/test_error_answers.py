"""Errors of image routes: answered by their handlers, raised once an answer has begun."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from app.routes.middleware import ErrorAnswers


class Known(Exception):
    """An error that has a handler."""


async def _answer(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{request.url.path}: {error}", 418)


def asked(error: Exception, **scope: Any) -> list[Message]:
    """Return the messages that are sent for a request whose route raises `error`."""
    sent: list[Message] = []

    async def route(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise error

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    request = {"type": "http", "method": "POST", "path": "/classify", "headers": []}
    request |= {"server": ("localhost", 80), "scheme": "http", "query_string": b""} | scope
    asyncio.run(ErrorAnswers(route, {Known: _answer})(request, receive, send))
    return sent


def test_an_error_with_a_handler_is_answered_by_it() -> None:
    start, body = asked(Known("no"))
    assert (start["status"], body["body"]) == (418, b"/classify: no")


def test_an_error_without_a_handler_is_raised() -> None:
    with pytest.raises(KeyError):
        asked(KeyError("fault"))


def test_an_error_after_the_beginning_of_an_answer_is_raised() -> None:
    with pytest.raises(Known):
        asked(Known("no"), answering=True)
