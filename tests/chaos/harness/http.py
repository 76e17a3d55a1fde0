"""A blocking HTTP/1.1 client on raw sockets that sends what no library would."""

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.bench.load import raw_post
from tests.chaos.harness.attack import Outcome, Target

EXCERPT = 300
"""Characters of an answer that are kept."""

_PIECE = 1 << 18


def post(path: str, body: bytes, kind: str = "application/octet-stream", more: str = "") -> bytes:
    """Return a POST that ends its connection; `more` is further lines of its head."""
    return raw_post(path, body, kind, f"{more}Connection: close\r\n")


def connect(target: Target, timeout: float = 30.0) -> socket.socket:
    """Open a connection from the attacker's address."""
    return socket.create_connection(("127.0.0.1", target.port), timeout, (target.source, 0))


def ask(target: Target, request: bytes, patience: float = 60.0) -> Outcome:
    """Send one request and read its answer to the end."""
    started = time.monotonic()
    try:
        connection = connect(target, patience)
    except TimeoutError:
        return Outcome("never", None, time.monotonic() - started)
    except OSError as error:
        return Outcome("refused", None, time.monotonic() - started, excerpt=str(error))
    with connection:
        return answer(connection, started, patience, request)


def ask_all(
    target: Target, requests: Sequence[bytes], patience: float = 60.0, lasting: float = 0.0
) -> Iterator[Outcome]:
    """Send all requests at once, each on its own connection, again for `lasting` seconds."""
    end = time.monotonic() + lasting

    def repeat(request: bytes) -> list[Outcome]:
        found = [ask(target, request, patience)]
        while time.monotonic() < end:
            if found[-1].end == "refused":
                time.sleep(0.2)
            found.append(ask(target, request, patience))
        return found

    with ThreadPoolExecutor(len(requests)) as pool:
        for done in as_completed([pool.submit(repeat, each) for each in requests]):
            yield from done.result()


def answer(
    connection: socket.socket, started: float, patience: float, request: bytes = b""
) -> Outcome:
    """Send `request` and read what comes, until the server ends it or patience does."""
    connection.settimeout(patience)
    sent_all = _send(connection, request)
    data = bytearray()
    end = "closed"
    size = 0
    try:
        while piece := connection.recv(_PIECE):
            size += len(piece)
            if len(data) < _PIECE:
                data += piece
            if _complete(data, size):
                break
    except TimeoutError:
        end = "never"
    except OSError:
        end = "reset"
    seconds = time.monotonic() - started
    if not data:
        return Outcome(end if sent_all or end != "closed" else "reset", None, seconds)
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else None
    excerpt = body[:EXCERPT].decode("utf-8", "replace")
    kept = "answered" if end != "never" else "never"
    return Outcome(kept, status, seconds, max(0, size - len(head) - 4), excerpt, head)


def _send(connection: socket.socket, request: bytes) -> bool:
    """Return whether all of it was taken; a server may answer, and stop reading, before."""
    try:
        connection.sendall(request)
    except OSError:
        return False
    return True


def _complete(data: bytearray, size: int) -> bool:
    """Return whether an answer that gives its length has come whole."""
    head, separator, _ = bytes(data[:65536]).partition(b"\r\n\r\n")
    if not separator:
        return False
    if b" 100 " in head.split(b"\r\n", 1)[0]:
        return False
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return size >= len(head) + 4 + int(value)
    return False


def close_all(connections: Iterable[socket.socket]) -> None:
    """Close every connection."""
    for each in connections:
        each.close()
