"""Clients that stop, one way or the other."""

import asyncio
import logging

import pytest
from starlette.types import Message, Receive, Scope, Send

from app.routes.middleware import LONGEST_PATH, OTHER, AccessLog
from app.telemetry.metrics import Metrics
from models.domain.alarms import alarms

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": None}


def test_methods_that_no_route_takes_are_one_in_the_metrics() -> None:
    async def refused(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 405, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Message) -> None: ...

    async def scenario() -> set[str]:
        metrics = Metrics()
        log = AccessLog(refused, metrics)
        for method in ("GET", "HEAD", "DELETE", "PROPFIND", "M-SEARCH", "QUERY", "PURGE"):
            await log({**SCOPE, "method": method}, receive, send)
        metrics.observations.flush()
        (family,) = metrics.requests.collect()
        return {each.labels["method"] for each in family.samples}

    assert asyncio.run(scenario()) == {"GET", "HEAD", "DELETE", OTHER}


@pytest.mark.parametrize(
    ("traceparent", "logged"),
    [
        (b"00-%b-%b-01" % (b"a" * 32, b"b" * 16), f"00-{'a' * 32}-{'b' * 16}-01"),
        (b"x" * 60_000, None),
    ],
)
def test_a_line_of_the_log_is_short_whatever_a_client_sends(
    caplog: pytest.LogCaptureFixture, traceparent: bytes, logged: str | None
) -> None:
    async def answered(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Message) -> None: ...

    async def scenario() -> None:
        scope = {**SCOPE, "path": "/" + "a" * 32_000, "headers": [(b"traceparent", traceparent)]}
        await AccessLog(answered, Metrics())(scope, receive, send)

    with caplog.at_level(logging.INFO, "darkroom.access"):
        asyncio.run(scenario())
    (line,) = caplog.records
    assert vars(line)["traceparent"] == logged
    assert len(vars(line)["path"]) == LONGEST_PATH


@pytest.mark.parametrize("ended", [True, False])
def test_a_request_that_a_server_cancels_at_its_end_is_answered(ended: bool) -> None:
    async def waiting(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def scenario() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        log = AccessLog(waiting, Metrics())
        request = asyncio.create_task(log(dict(SCOPE), receive, send))
        await asyncio.sleep(0)
        if ended:
            alarms().end()
        request.cancel()
        await asyncio.wait([request])
        assert request.cancelled() is not ended
        return sent

    sent = asyncio.run(scenario())
    assert [each["status"] for each in sent if "status" in each] == ([503] if ended else [])
