"""Bodies that cost a parser much: JSON, archives, and bodies that begin and never end.

Promise: each is refused while it is read, with a short answer, or answered within the deadline;
memory stays bounded, and JSON of other clients is read meanwhile. `tests/unit/app/archives` has the
archives whose records lie.
"""

import base64
import time
from dataclasses import replace

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import answer, ask, ask_all, close_all, connect, post
from tests.chaos.hostile.archives import bomb
from tests.pictures import jpeg


def packed_tar_bombs(target: Target) -> Steps:
    """Send eight compressed TARs that unpack to gigabytes of a file that is no image."""
    bodies = [bomb(kind, 6 << 30, filler=60_000_000) for kind in ("gz", "bz2")]
    paths = ("/classify", "/filter?name=invert") * 2
    requests = [post(path, body, "application/gzip") for body in bodies for path in paths]
    yield None
    yield from ask_all(target, requests, 80.0)


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


def json_urls(target: Target) -> Steps:
    """Send a list of six million URLs."""
    body = b'{"urls": [' + b'"a",' * 5_999_999 + b'"a"]}'
    paths = ("/classify", "/filter", "/process")
    requests = [post(path, body, "application/json") for path in paths]
    yield None
    yield from ask_all(target, requests, 80.0, 3.0)
