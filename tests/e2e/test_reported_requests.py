"""Requests that people reported to other projects, sent byte by byte (`shared/data/cases`)."""

import json
import socket
from typing import Any

import pytest

from tests.e2e.conftest import Running
from tests.shared import SHARED

CASES = sorted((SHARED / "cases").glob("*.http"))


def answer_to(port: int, request: bytes) -> tuple[int, bytes]:
    """Send a whole request, and return the status and the body of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
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
