"""Bodies that begin and never end: forms of small files, small JSON, streams inside a line.

Old effect: files of up to 64 KiB and JSON of up to 1 MiB counted in no memory but that of arriving
bytes, so they took 500 MB; then JSON of one client took all memory for JSON; streams that broke off
inside a line never freed their memory. Promise: memory stays bounded, and JSON of other clients is
read meanwhile, and that of all when such clients have left.
"""

import base64
import socket
import time
from dataclasses import replace

from tests.chaos.attacks.odd_streams import chunk, head
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import answer, ask, close_all, connect, post, until_closed
from tests.pictures import jpeg

HOLDS = 9.0
"""Seconds for which a body is held, before the server ends it as too slow."""

PARTS = 150
"""Files of a form, fewer than the parts that it may have."""

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


def unfinished_forms(target: Target) -> Steps:
    """Hold 48 forms of 150 files of 64 KiB whose end does not come."""
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    body = (part + bytes(1 << 16) + b"\r\n") * PARTS
    yield None
    yield from _held(target, _begun("multipart/form-data; boundary=b", body), 48)


def unfinished_json(target: Target) -> Steps:
    """Hold 220 JSON bodies of 1 MB whose end does not come."""
    body = b'{"images": [{"data": "data:image/png;base64,' + b"A" * 1_000_000
    yield None
    yield from _held(target, _begun("application/json", body), 220)


def unfinished_lines(target: Target) -> Steps:
    """Leave 60 streams inside a line of 5 MB, and then send JSON of 2 MB."""
    begun = head("/classify") + chunk(b'{"data": "' + b"A" * 5_000_000)
    yield None
    for _ in range(60):
        with connect(target) as connection:
            connection.sendall(begun)
            connection.shutdown(socket.SHUT_WR)
            until_closed(connection, time.monotonic(), 10.0)  # the server has read the line
    yield from _large_json(target)
