"""Requests that a server gives up when its drain timeout is over, at real servers."""

import base64
import http.client
import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

from tests.e2e.conftest import Running, Start
from tests.e2e.test_streams import line, talking
from tests.pictures import png
from tests.server import COLD, FILTERS, PATIENCE, serving, until

STOPPED = "the server is shutting down; send it again"


@pytest.fixture
def origin() -> Iterator[socket.socket]:
    """Listen at a port where connections are accepted, and no request is answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


@pytest.fixture
def ending(start: Start) -> Iterator[Running]:
    """Run a server that gives requests up as soon as it ends, and then waits for their answers."""
    with start(
        drain_timeout=0.001,
        body_timeout=PATIENCE,
        fetch_allowed_networks="127.0.0.0/8",
        fetch_ports="1-65535",
        fetch_total_timeout=PATIENCE,
    ) as running:
        running.server.config.timeout_graceful_shutdown = None
        yield running


def address(origin: socket.socket) -> str:
    return f"http://127.0.0.1:{origin.getsockname()[1]}/photo.jpg"


def image() -> dict[str, str]:
    return {"data": "data:image/png;base64," + base64.b64encode(png()).decode()}


def assert_stopped(problem: dict[str, Any]) -> None:
    assert (problem["status"], problem["code"], problem["detail"]) == (503, "draining", STOPPED)


def test_requests_whose_images_are_in_work_are_answered_with_503_and_no_done_image_is_lost(
    ending: Running, origin: socket.socket
) -> None:
    waiting = {"url": address(origin)}
    with ThreadPoolExecutor() as clients, ExitStack() as fetches:
        replies = [
            clients.submit(ending.client.post, path, json={"images": images})
            for path in ("/classify", "/filter?name=invert", "/process", "/info")
            for images in ([waiting], [image(), waiting])[: 1 + (path == "/info")]
        ]
        for _ in replies:
            fetches.enter_context(origin.accept()[0])
        done = 'darkroom_images_total{operation="info",outcome="ok"} 1.0'
        until(lambda: done in ending.client.get("/metrics").text)
        ending.server.should_exit = True
        *found, last = [each.result() for each in replies]
    for each in found:
        assert each.status_code == 503
        assert int(each.headers["Retry-After"]) > 0
        assert_stopped(each.json())
    first, stopped = last.json()["results"]
    assert first["status"] == "ok"
    assert_stopped(stopped["error"])


def test_a_request_whose_body_has_not_come_is_answered_with_503(ending: Running) -> None:
    with socket.create_connection(("127.0.0.1", ending.port), PATIENCE) as connection:
        head = b"POST /info HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 100"
        connection.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        with connection.makefile("rb") as file:
            assert file.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert file.readline() == b"\r\n"
            ending.server.should_exit = True
            head, _, body = file.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: " in head.lower()
    assert_stopped(json.loads(body))


def test_every_unfinished_image_of_a_stream_has_its_own_error(
    ending: Running, origin: socket.socket
) -> None:
    with talking(ending.port, "/info") as talk:
        talk.send(line("a", png()))
        first = talk.record()
        for id_ in ("b", "c"):
            talk.send(json.dumps({"id": id_, "url": address(origin)}).encode() + b"\n")
        with origin.accept()[0], origin.accept()[0]:
            ending.server.should_exit = True
            found = list(iter(talk.record, None))
    assert first is not None
    assert first["status"] == "ok"
    assert {each.get("id") for each in found} == {"b", "c", None}
    for each in found:
        assert_stopped(each["error"])


@pytest.mark.parametrize("grace", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_no_kept_connection_loses_a_request_while_the_server_ends(grace: str) -> None:
    """Kept connections send one request after the other, until an answer says that they end."""
    with serving("--grace", grace, program=COLD, environment=FILTERS) as served:
        port, process = served.port, served.process
        going, lost = Event(), list[Exception]()

        def send_requests() -> int:
            n_answers = 0
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            try:
                while True:
                    connection.request("POST", "/info", png(), {"Content-Type": "image/png"})
                    reply = connection.getresponse()
                    reply.read()
                    n_answers += 1
                    if reply.headers["Connection"] == "close":
                        return n_answers
                    if n_answers == 5:
                        going.set()
            except (OSError, http.client.HTTPException) as error:
                lost.append(error)
            return n_answers

        with ThreadPoolExecutor(16) as clients:
            answers = [clients.submit(send_requests) for _ in range(16)]
            assert going.wait(PATIENCE)
            process.send_signal(signal.SIGTERM)
            counts = [each.result() for each in answers]
        assert not lost, counts
        assert process.wait(PATIENCE) == 0
