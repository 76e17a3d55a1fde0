"""The line, the metric and the headers of a request, and a request that the server cancels."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.main import create_app
from app.routes import image_route
from app.routes.middleware import LONGEST_PATH, OTHER, RequestLayer
from app.telemetry.metrics import Metrics
from models.domain.alarms import alarms
from models.domain.errors import Cancelled, Overloaded
from models.settings import Settings
from tests.asgi import body_of
from tests.in_process import client_of

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}


async def sent(app: ASGIApp, metrics: Metrics, **scope: object) -> list[Message]:
    """Return the messages with which a request is answered."""
    found: list[Message] = []

    async def send(message: Message) -> None:
        found.append(message)

    await RequestLayer(FastAPI(), app, Settings(), metrics)({**SCOPE, **scope}, body_of(), send)
    return found


async def test_methods_that_no_route_takes_are_one_in_the_metrics() -> None:
    metrics = Metrics()
    for method in ("GET", "HEAD", "DELETE", "PROPFIND", "M-SEARCH", "QUERY", "PURGE"):
        await sent(Response(status_code=405), metrics, method=method)
    metrics.flush()
    (family,) = metrics.requests.collect()
    assert {each.labels["method"] for each in family.samples} == {"GET", "HEAD", "DELETE", OTHER}


@pytest.mark.parametrize(
    ("traceparent", "logged"),
    [
        (b"00-%b-%b-01" % (b"a" * 32, b"b" * 16), f"00-{'a' * 32}-{'b' * 16}-01"),
        (b"x" * 60_000, None),
    ],
)
async def test_a_line_of_the_log_is_short_whatever_a_client_sends(
    caplog: pytest.LogCaptureFixture, traceparent: bytes, logged: str | None
) -> None:
    headers = [(b"traceparent", traceparent)]
    with caplog.at_level(logging.INFO, "darkroom.access"):
        await sent(Response(), Metrics(), path="/" + "a" * 32_000, headers=headers)
    (line,) = caplog.records
    assert vars(line)["traceparent"] == logged
    assert len(vars(line)["path"]) == LONGEST_PATH


@pytest.mark.parametrize("begun", [True, False])
async def test_an_answer_that_was_dropped_is_told_of_before_it_begins_and_is_no_fault(
    caplog: pytest.LogCaptureFixture, begun: bool
) -> None:
    async def dropped(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await Response()(scope, receive, send)
        raise Cancelled("the client read too slowly")

    found = await sent(dropped, Metrics())
    assert [each["status"] for each in found[::2]] == [200 if begun else 499]
    assert all(each.levelno < logging.WARNING for each in caplog.records)


@pytest.mark.parametrize("ended", [True, False])
async def test_a_request_that_a_server_cancels_at_its_end_is_answered(ended: bool) -> None:
    async def waiting(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    request = asyncio.create_task(sent(waiting, Metrics()))
    await asyncio.sleep(0)
    if ended:
        alarms().end()
    request.cancel()
    await asyncio.wait([request])
    assert request.cancelled() is not ended
    if ended:
        assert request.result()[0]["status"] == 503


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("POST", "/classify", 503, None),  # admission refuses it
        ("GET", "/classify", 405, "POST"),
        ("POST", "/livez", 405, "GET, HEAD"),
        ("POST", "/jobs/x", 405, "DELETE, GET, HEAD"),  # two routes
        ("POST", "/classify/", 307, None),
        ("POST", "/nowhere", 404, None),
        ("GET", "/livez", 200, None),
    ],
)
async def test_every_answer_has_an_id_and_an_error_is_a_problem(
    method: str, path: str, status: int, allow: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_service: object, scope: Scope) -> str:
        assert "router" not in scope  # the router has not searched its routes for it
        raise Overloaded("full", retry_after=3.0)

    monkeypatch.setattr(image_route, "client_name", refuse)
    service = SimpleNamespace(metrics=Metrics(), settings=Settings())
    monkeypatch.setattr(image_route, "service_in", lambda _scope: service)
    async with client_of(create_app(Settings())) as client:
        reply = await client.request(method, path)
    assert (reply.status_code, reply.headers.get("Allow")) == (status, allow)
    is_problem = reply.headers.get("Content-Type") == "application/problem+json"
    assert is_problem == (status >= 400)
    assert reply.headers.get("Retry-After") == ("3" if status == 503 else None)
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert len(reply.headers["X-Request-ID"]) == 32
