"""Hundreds of requests that become complete at the same moment, and a body in tiny chunks.

Old effect: all of them were one turn of the event loop, in which nothing else was answered; 1,000
health checks with a query of 4,000 fields held up `/livez` for 5 s. Promise: they are worked on a
few at a time, and health checks before all others.
"""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.chaos.harness.attack import Outcome, Steps, Target
from tests.chaos.harness.http import answer, close_all, connect, post

_CONNECTIONS = 400
_ROUNDS = 2


def _rounds(target: Target, request: bytes, last: int) -> list[Outcome]:
    """Send the `last` bytes of all requests together, when the server has the rest of them."""
    found: list[Outcome] = []
    for _ in range(_ROUNDS):
        opened = [connect(target) for _ in range(_CONNECTIONS)]
        for each in opened:
            each.sendall(request[:-last])
        time.sleep(0.5)  # the attacker's own pause: the server reads what has come
        started = time.monotonic()
        for each in opened:
            each.sendall(request[-last:])
        with ThreadPoolExecutor(8) as pool:
            found += pool.map(partial(answer, started=started, patience=60.0), opened)
        close_all(opened)
    return found


def _attack(target: Target, requests: Sequence[tuple[bytes, int]]) -> Steps:
    yield None
    for request, last in requests:
        yield from _rounds(target, request, last)


def body_bursts(target: Target) -> Steps:
    """End the bodies of 400 requests at the same moment: wrong JSON, and 64 long versions."""
    wrong = post("/info", b'{"images":[' + b",".join([b"1"] * 4000) + b"]}", "application/json")
    chain = [{"name": "gaussian_blur", "sigma": each + 1} for each in range(32)]
    versions = json.dumps([{"ops": chain}] * 63 + [{"ops": [{"name": "none"}]}]).encode()
    parts = (b'name="versions"\r\n\r\n' + versions, b'name="file"; filename="a"\r\n\r\nno image')
    form = b"".join(b"--b\r\nContent-Disposition: form-data; %b\r\n" % each for each in parts)
    asked = post("/process", form + b"--b--", "multipart/form-data; boundary=b")
    yield from _attack(target, [(wrong, 1), (asked, 1)])


def tiny_chunks(target: Target) -> Steps:
    """Send a body of 60 MB in 10,000,000 chunks of one byte."""
    yield None
    head = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
    start = head + b"Transfer-Encoding: chunked\r\n\r\n"
    started = time.monotonic()
    with connect(target) as connection:
        try:
            connection.sendall(start)
            for _ in range(1000):
                connection.sendall(b"1\r\na\r\n" * 10_000)
            connection.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        yield answer(connection, started, 60.0)
