"""Refused requests: the cause that is told, the client that is charged, the routes that go on."""

import json
import logging
import socket

import pytest

from app.admission.counters import Total
from models.domain.errors import Overloaded
from tests.e2e.conftest import Running, running
from tests.pictures import jpeg

JPEG = {"content-type": "image/jpeg", "x-request-id": 'from "me"'.replace(" ", "_")}


@pytest.fixture
def refusing(server: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Start a server for which nothing computes, for longer than any deadline.

    The wait that it predicts does not depend on what it has admitted.
    """
    backlog = server.app.state.service.admission.backlog
    monkeypatch.setattr(backlog, "wait", lambda _client, _more=0: 1000.0)
    return server


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


def test_the_client_behind_a_trusted_proxy_is_the_one_that_admission_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []
    caplog.set_level(logging.INFO, "darkroom.access")
    with running(trusted_proxies="127.0.0.0/8") as started:
        admission = started.app.state.service.admission

        def enter(client: str, *_more: object, **_options: object) -> None:
            seen.append(client)
            raise Overloaded("no", 1.0)

        admission.enter = enter
        headers = JPEG | {"x-forwarded-for": "192.0.2.9"}
        reply = started.client.post("/filter?name=invert", content=jpeg(), headers=headers)
    assert seen == ["192.0.2.9"]
    clients = [vars(each)["client"] for each in caplog.records if vars(each).get("status") == 503]
    assert clients == ["192.0.2.9"]
    assert json.loads(reply.content)["detail"] == "no"
    assert admission.counters.total(Total.IMAGES) == 0
