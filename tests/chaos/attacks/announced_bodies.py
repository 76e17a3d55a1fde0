"""Four connections announce bodies of 256 MiB and send nothing.

Old effect: announced bytes were charged before one had arrived, so that every other request was
refused for 30 s, or for 120 s with `X-Deadline-Ms`. Promise: neighbours are not refused, and each
of the four is answered or closed.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.harness.attack import Outcome, Steps, Target
from tests.chaos.harness.http import connect, until_closed

_PATIENCE = 125.0


def _head(path: str = "/classify", more: str = "", size: int = 268_435_456) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}"
        "Content-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {size}\r\n\r\n"
    ).encode()


def _held(target: Target, heads: Sequence[bytes]) -> Steps:
    def one(head: bytes) -> Outcome:
        started = time.monotonic()
        with connect(target) as connection:
            connection.sendall(head)
            return until_closed(connection, started, _PATIENCE)

    with ThreadPoolExecutor(len(heads)) as pool:
        yield from pool.map(one, heads)


def announced_bodies(target: Target) -> Steps:
    """Announce four bodies of 256 MiB that never come."""
    yield None
    yield from _held(target, [_head()] * 4)


def announced_bodies_long(target: Target) -> Steps:
    """Announce four bodies that never come, with a deadline of 120 s."""
    yield None
    yield from _held(target, [_head(more="X-Deadline-Ms: 120000\r\n")] * 4)


def announced_many(target: Target) -> Steps:
    """Announce 600 bodies of 1 MB that never come, more than images may be in flight."""
    yield None
    yield from _held(target, [_head(size=1_000_000)] * 600)


def chunked_bodies(target: Target) -> Steps:
    """Begin 600 chunked bodies that never go on."""
    yield None
    head = b"POST /filter?name=invert HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield from _held(target, [head + b"5\r\nabcde\r\n"] * 600)


def expected_bodies(target: Target) -> Steps:
    """Ask four times for `100 Continue` before bodies of 256 MiB that never come."""
    yield None
    yield from _held(target, [_head(more="Expect: 100-continue\r\n")] * 4)
