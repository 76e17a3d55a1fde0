"""Requests that people reported to other projects, sent byte by byte (`shared/data/cases`)."""

import base64
import gzip
import json
import socket
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Running
from tests.pictures import jpeg
from tests.server import PATIENCE
from tests.shared import SHARED

CASES = sorted((SHARED / "cases").glob("*.http"))


def answer_to(port: int, request: bytes) -> tuple[int, bytes]:
    """Send a whole request, and return the status and the body of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.skipif(not CASES, reason="the reported requests are not beside this checkout")
@pytest.mark.parametrize("case", [path.name for path in CASES])
def test_a_reported_request_gets_the_answer_of_one_image(server: Running, case: str) -> None:
    status, body = answer_to(server.port, (SHARED / "cases" / case).read_bytes())
    assert status == 200, body
    if "ops" in case:
        assert body.startswith(b"\xff\xd8\xff")
        return
    found: dict[str, Any] = json.loads(body)
    (record,) = found["results"]
    assert record["predictions"]
    if "filename" in case:
        assert record["source"] == "€.jpg"


PHOTO = jpeg(1)
LINE = json.dumps({"data": "data:;base64," + base64.b64encode(PHOTO).decode()}).encode() + b"\n"
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n%s\r\n--b--\r\n'
)


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("image/jpeg", PHOTO),
        ("multipart/form-data; boundary=b", FORM % PHOTO),
        ("application/x-ndjson", LINE * 2),
    ],
)
def test_a_packed_body_of_any_kind_is_unpacked(
    client: httpx.Client, coding: str, pack: Callable[[bytes], bytes], kind: str, body: bytes
) -> None:
    headers = {"Content-Type": kind, "Content-Encoding": coding}
    answer = client.post("/classify", content=pack(body), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.text.count('"status":"ok"') == body.count(PHOTO) + body.count(b"data:")


@pytest.mark.parametrize("path", ["/classify", "/info", "/v2/models/resnet18/infer"])
def test_another_coding_is_refused_by_the_headers_alone(server: Running, path: str) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\nContent-Encoding: br\r\n"
        "Content-Length: 1000\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(1 << 16).lower()
    assert answer.startswith(b"http/1.1 415")
    assert b"accept-encoding: gzip, deflate\r\n" in answer
    assert b"content-encoding is br" in answer
