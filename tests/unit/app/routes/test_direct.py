"""Requests for image routes do not pass FastAPI's router, and are answered as if they did."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.main import create_app
from app.routes.image_route import ImageRoute
from models.domain.errors import Overloaded
from models.settings import Settings

PATHS = ("/classify", "/filter", "/process")


def scope(method: str, path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": [(b"host", b"here")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }


def answered(method: str, path: str) -> tuple[int, dict[bytes, bytes]]:
    """Return the status and the headers of the answer to a request without a body."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(create_app(Settings())(scope(method, path), receive, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Scope]:
    """Return the scopes of the requests that reach an image route, all of which are refused."""
    seen: list[Scope] = []

    async def refuse(_route: ImageRoute, scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)
        raise Overloaded("full", retry_after=3.0)

    monkeypatch.setattr(ImageRoute, "handle", refuse)
    return seen


@pytest.mark.parametrize("path", PATHS)
def test_an_image_route_is_called_without_fastapis_router(path: str, refused: list[Scope]) -> None:
    status, headers = answered("POST", path)
    (seen,) = refused
    assert "router" not in seen, "FastAPI's router writes itself there"
    assert seen["route"].path == path
    assert seen["app"] is not None
    assert (status, headers[b"retry-after"]) == (503, b"3"), "errors are answered as problems"
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert len(headers[b"x-request-id"]) == 32


@pytest.mark.parametrize("path", PATHS)
def test_other_methods_of_an_image_route_are_answered_by_fastapi(path: str) -> None:
    status, headers = answered("GET", path)
    assert (status, headers[b"allow"]) == (405, b"POST")


def test_other_paths_are_answered_by_fastapi() -> None:
    assert answered("POST", "/classify/")[0] == 307
    assert answered("POST", "/nowhere")[0] == 404
    assert answered("GET", "/livez")[0] == 200
