"""Connections that announce bodies and send nothing.

Promise: bytes are charged as they arrive, so neighbours are not refused, and each of the
connections is answered or closed.
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


def announced_many(target: Target) -> Steps:
    """Announce 600 bodies of 1 MB that never come, more than images may be in flight."""
    yield None
    yield from _held(target, [_head(size=1_000_000)] * 600)
