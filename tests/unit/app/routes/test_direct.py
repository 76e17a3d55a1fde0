"""Refusals of image routes, and requests that no route of the application takes."""

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from app.main import create_app
from app.routes.image_route import ImageRoute
from models.domain.errors import Overloaded
from models.settings import Settings


async def answered(method: str, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(Settings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.request(method, path)


@pytest.mark.parametrize("path", ["/classify", "/filter", "/process"])
async def test_a_refusal_is_a_problem_with_the_headers_of_every_answer(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_route: ImageRoute, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise Overloaded("full", retry_after=3.0)

    monkeypatch.setattr(ImageRoute, "handle", refuse)
    reply = await answered("POST", path)
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "3")
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert len(reply.headers["X-Request-ID"]) == 32


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/classify", 405),
        ("POST", "/classify/", 307),
        ("POST", "/nowhere", 404),
        ("GET", "/livez", 200),
    ],
)
async def test_other_methods_and_paths_are_answered_by_fastapi(
    method: str, path: str, status: int
) -> None:
    assert (await answered(method, path)).status_code == status
