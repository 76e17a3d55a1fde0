"""Bodies of any length at a real server: records come while images are still sent."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.admission.counters import Total
from tests.e2e.conftest import Running, Start
from tests.pictures import jpeg, png
from tests.server import PATIENCE, until

LINES = {"Content-Type": "application/x-ndjson"}
DELIMITED = {"Content-Type": "application/x-length-delimited"}


def line(id_: str, image: bytes) -> bytes:
    """Return an image as a line of a stream."""
    uri = "data:image/jpeg;base64," + base64.b64encode(image).decode()
    return json.dumps({"id": id_, "data": uri}).encode() + b"\n"


def delimited(*images: bytes) -> bytes:
    """Return images with their lengths before them."""
    return b"".join(len(each).to_bytes(4, "big") + each for each in images)


def records(reply: httpx.Response) -> list[dict[str, Any]]:
    """Return the records of an answer in the order of the images."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(each) for each in reply.text.splitlines()]
    return sorted(found, key=lambda each: int(each["index"]))


class Talk:
    """A connection on which a chunked request is sent piece by piece while its answer is read."""

    def __init__(self, port: int, path: str, kind: str = LINES["Content-Type"]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        self.socket.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.rest = b""
        self.head: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Send a piece of the body, or its end if it has no bytes."""
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def record(self) -> dict[str, Any] | None:
        """Return the next record, None at the end of the answer."""
        if not self.head:
            while (text := self.file.readline().strip()) or not self.head:
                if text != b"HTTP/1.1 100 Continue":
                    self.head.append(text)
        while b"\n" not in self.rest:
            size = int(self.file.readline() or b"0", 16)
            piece = self.file.read(size)
            self.file.readline()
            if not size:
                return None
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\n")
        found: dict[str, Any] = json.loads(text)
        return found


@contextmanager
def talking(port: int, path: str, kind: str = LINES["Content-Type"]) -> Iterator[Talk]:
    """Open a connection for the block."""
    talk = Talk(port, path, kind)
    try:
        yield talk
    finally:
        talk.file.close()
        talk.socket.close()


def test_more_images_than_a_request_takes_are_answered(client: httpx.Client) -> None:
    found = records(client.post("/info", content=delimited(*[png()] * 50), headers=DELIMITED))
    assert [each["index"] for each in found] == list(range(50))
    assert {each["status"] for each in found} == {"ok"}


def test_what_is_wrong_with_a_line_is_its_own_error(client: httpx.Client) -> None:
    wrong = [b"no json", b"[1]", b'{"id": "c"}', b'{"url": "http://169.254.169.254/"}', b'{"x": 1}']
    body = b"\n".join([*wrong, line("good", jpeg())])
    found = records(client.post("/info", content=body, headers=LINES))
    assert [each.get("error", {}).get("code") for each in found] == [
        "malformed_request",
        "invalid_parameter",
        "invalid_parameter",
        "address_refused",
        "invalid_parameter",
        None,
    ]
    assert found[2]["id"] == "c"


def test_a_client_that_waits_for_each_answer_gets_it(server: Running) -> None:
    with talking(server.port, "/info") as talk:
        for n in range(5):
            talk.send(line(str(n), png()))
            found = talk.record()
            assert found is not None
            assert (found["id"], found["status"]) == (str(n), "ok")
        talk.send(b"")
        assert talk.record() is None


def test_the_server_reads_no_more_than_it_can_answer(start: Start) -> None:
    """Send without reading: the server stops reading too, so sends block."""
    image = delimited(png(width=900, height=900))

    def send_all(talk: Talk) -> None:
        for _ in range(100_000):
            talk.send(image)

    path, kind = "/filter?name=invert&format=png", DELIMITED["Content-Type"]
    with start(max_images_per_request=2, weights="bundled") as server:
        with talking(server.port, path, kind) as talk:
            talk.socket.settimeout(1)
            with pytest.raises(TimeoutError):
                send_all(talk)
        until(lambda: server.app.state.service.admission.counters.total(Total.IMAGES) == 0)
