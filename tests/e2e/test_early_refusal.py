"""Requests that are refused by their headers get the answers that the application gives."""

import json
import logging
import socket
from collections.abc import Iterator

import httpx
import pytest

from app.admission.counters import Rate, Total
from app.connections.http1.protocol import GuardedProtocol
from app.routes.images.image_route import ImageRoute
from models.domain.errors import Overloaded
from tests.e2e.conftest import Running, running
from tests.pictures import jpeg

JPEG = {"content-type": "image/jpeg", "x-request-id": 'from "me"'.replace(" ", "_")}
TWICE = [*JPEG.items(), ("x-other", "1"), ("x-other", "2")]
"""Headers with a name that comes twice, which leave the decision to the application."""


@pytest.fixture
def refusing(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Start a server for which nothing computes, for longer than any deadline.

    The wait that it predicts does not depend on what it has admitted.
    """
    account = server.app.state.service.admission.account
    account.absence = lambda: 1000.0
    monkeypatch.setattr(account, "wait", lambda _key, _more: 1000.0)
    try:
        yield server
    finally:
        account.absence = lambda: 0.0


def lines(reply: httpx.Response) -> list[tuple[str, str]]:
    return [each for each in reply.headers.multi_items() if each[0] != "date"]


@pytest.mark.parametrize("path", ["/filter?name=invert", "/v2/models/resnet18/infer"])
def test_the_early_answer_is_the_applications_to_the_byte(refusing: Running, path: str) -> None:
    for _ in range(20):  # a tenth of a second of the deadline may pass between arrival and refusal
        early = refusing.client.post(path, content=jpeg(), headers=JPEG)
        late = refusing.client.post(path, content=jpeg(), headers=TWICE)
        if early.content == late.content:
            break
    assert early.status_code == late.status_code == 503
    told = early.json()
    assert (told.get("detail") or told["error"]).startswith(
        "this request would end in about 2000.0 s"
    )
    assert early.content == late.content
    assert lines(early) == lines(late)


@pytest.mark.parametrize("path", ["/classify", "/v2/models/resnet18/infer"])
def test_no_application_is_asked_and_the_refusal_is_counted(
    refusing: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(ImageRoute, "handle", None)
    before = counted(refusing)
    for _ in range(3):
        reply = refusing.client.post(path, content=jpeg(), headers=JPEG)
        assert reply.status_code == 503
    assert counted(refusing) == before + 3


def test_under_overload_a_new_connection_gets_the_same_refusal_without_a_protocol(
    refusing: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, headers = f"http://127.0.0.1:{refusing.port}/classify", {**JPEG, "connection": "close"}
    for _ in range(20):  # as above
        usual = refusing.client.post(url, content=jpeg(), headers=headers)
        with monkeypatch.context() as patched:
            patched.setattr(GuardedProtocol, "__init__", None)
            bare = httpx.post(url, content=jpeg(), headers=headers)
        if bare.content == usual.content:
            break
    assert bare.status_code == usual.status_code == 503
    assert bare.content == usual.content
    assert lines(bare) == lines(usual)


def counted(server: Running) -> float:
    metrics = server.app.state.service.metrics
    return float(metrics.rejections.labels("deadline")._value.get())


def test_other_routes_are_answered(refusing: Running) -> None:
    assert refusing.client.get("/livez").status_code == 200
    assert refusing.client.get("/filter").status_code == 405


def test_what_is_wrong_with_a_request_is_told_first(refusing: Running) -> None:
    headers = {"x-deadline-ms": "never"}
    assert refusing.client.post("/classify", content=jpeg(), headers=headers).status_code == 422
    with socket.create_connection(("127.0.0.1", refusing.port)) as connection:
        head = b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % (1 << 40))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_a_rate_is_charged_once_and_refused_early(server: Running) -> None:
    admission = server.app.state.service.admission
    admission.rate = Rate(0.001, 2)
    asked = []
    try:
        for _ in range(3):
            reply = server.client.post("/filter?name=invert", content=jpeg(), headers=JPEG)
            asked.append(reply.status_code)
    finally:
        admission.rate = None
    assert asked == [200, 200, 429]
    assert reply.json()["code"] == "rate_limited"
    assert int(reply.headers["retry-after"]) > 0


def test_the_client_behind_a_trusted_proxy_is_the_one_that_admission_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []
    caplog.set_level(logging.INFO, "darkroom.access")
    with running(trusted_proxies="127.0.0.0/8") as started:
        admission = started.app.state.service.admission

        def refusal(client: str, *_more: object) -> Overloaded:
            seen.append(client)
            return Overloaded("no", 1.0)

        admission.refusal = refusal
        headers = JPEG | {"x-forwarded-for": "192.0.2.9"}
        reply = started.client.post("/filter?name=invert", content=jpeg(), headers=headers)
    assert seen == ["192.0.2.9"]
    clients = [vars(each)["client"] for each in caplog.records if vars(each).get("status") == 503]
    assert clients == ["192.0.2.9"]
    assert json.loads(reply.content)["detail"] == "no"
    assert admission.counters.total(Total.IMAGES) == 0
