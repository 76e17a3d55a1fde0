"""JSON bodies that begin and never end.

Promise: memory stays bounded, and JSON of other clients is read meanwhile, and that of all when
such clients have left.
"""

import base64
import time
from dataclasses import replace

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import answer, ask, close_all, connect, post
from tests.pictures import jpeg

HOLDS = 9.0
"""Seconds for which a body is held, before the server ends it as too slow."""


OTHER = "127.0.0.8"
"""The address of a client that sends JSON meanwhile."""


def _held(target: Target, request: bytes, count: int) -> Steps:
    """Send as much of `request` as is taken on each connection, hold all, and read the answers.

    Meanwhile another client sends JSON of 2 MB.
    """
    started = time.monotonic()
    connections = []
    for _ in range(count):
        try:
            connection = connect(target, 10.0)
            connections.append(connection)
            connection.sendall(request)
        except OSError:  # it was refused; the answer is read below
            continue
    yield from _large_json(replace(target, source=OTHER))
    time.sleep(max(0.0, started + HOLDS - time.monotonic()))
    for connection in connections:
        yield answer(connection, started, 30.0)
    close_all(connections)


def _large_json(target: Target) -> Steps:
    """Send JSON of 2 MB, which must be answered."""
    data = base64.b64encode(jpeg(1) + bytes(1_500_000)).decode()
    body = b'{"images": [{"data": "data:image/jpeg;base64,%b"}]}' % data.encode()
    found = ask(target, post("/classify", body, "application/json"))
    yield found
    yield Finding("large_json_refused", float(found.status != 200), most=0)


def _begun(kind: str, body: bytes) -> bytes:
    """Return a request that announces more of a body than it has."""
    whole = post("/classify", body, kind)
    announced = f"Content-Length: {len(body)}\r\n".encode()
    return whole.replace(announced, f"Content-Length: {len(body) + 99}\r\n".encode(), 1)


def unfinished_json(target: Target) -> Steps:
    """Hold 220 JSON bodies of 1 MB whose end does not come."""
    body = b'{"images": [{"data": "data:image/png;base64,' + b"A" * 1_000_000
    yield None
    yield from _held(target, _begun("application/json", body), 220)
