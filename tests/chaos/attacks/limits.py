"""Limits with several front ends: what the settings allow holds for all of them together.

Old effect: limits were shared out silently, so that one front end refused what the settings allow,
and each of several front ends filled its own part. Promise: a request that the settings allow is
taken, and all front ends together hold exactly what is allowed and no more.

Nothing here depends on timing. Requests hold what they hold until the attack lets go: their images
are URLs of an origin that answers when it is told to, and their bodies lack the last byte. A
request has been decided when it was refused, or when `/metrics` counts it; so the clients count
what is held, and compare it with the limit and with the gauge.
"""

import json
import socket
import threading
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace

from tests.chaos.attacks.held import Held
from tests.chaos.attacks.impatient import slow_request
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.pictures import jpeg

IMAGES, BYTES, ARRIVING, FETCHES, CONNECTIONS = 48, 4 << 20, 2 << 20, 12, 200
OF_ONE_CLIENT = 9  # fetches: a client leaves a quarter of them to others
_PIECE = 256 << 10
"""Bytes of one body that is held, which several of fill a limit."""

FLAGS = tuple(
    word
    for name, value in (
        ("max-images-in-flight", IMAGES),
        ("max-images-per-request", IMAGES),
        ("max-bytes-in-flight", BYTES),
        ("fetch-concurrency", FETCHES),
        ("max-connections-per-client", CONNECTIONS),
        ("fetch-allowed-networks", "127.0.0.0/8"),
        ("fetch-ports", "1-65535"),
        ("fetch-total-timeout", 100),
    )
    for word in (f"--{name}", str(value))
)
_DEADLINE = "X-Deadline-Ms: 120000\r\n"
_OTHER = "127.0.0.77"
"""Another address of this machine: its connections are counted by themselves."""


@dataclass(slots=True)
class _Origin:
    """An origin that answers nothing until `released`, and counts what is open at a time."""

    released: threading.Event = field(default_factory=threading.Event)
    most: int = 0
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listener: socket.socket = field(
        default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=512)
    )
    _photo: bytes = field(default_factory=lambda: jpeg(5))

    def start(self) -> str:
        """Begin to take connections; the URL of an image."""
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def close(self) -> None:
        """Take no more connections."""
        self.released.set()
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with self._lock:
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            with connection, suppress(OSError):
                connection.recv(65536)
                self.released.wait()
                head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: image/jpeg\r\n"
                length = b"Content-Length: %d\r\n\r\n" % len(self._photo)
                connection.sendall(head + length + self._photo)
        finally:
            with self._lock:
                self._open -= 1


def shared_limits(target: Target) -> Steps:
    """Fill each limit of two front ends three times over, and count exactly what they hold."""
    with ExitStack() as stack:
        origin = stack.enter_context(closing(_Origin()))
        url = origin.start()
        found = [*_whole_requests(target), *_images_and_fetches(target, origin, url)]
        found += _bytes(target, stack)
        found += _arriving(target)
        found += _connections(replace(target, source=_OTHER))
    slow = [slow_request()] * 24
    yield None
    yield from found
    yield from ask_all(target, slow, 60.0)


def _whole_requests(target: Target) -> Steps:
    """Send requests with as many images as all front ends may hold: each of them must be taken."""
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    form = b"".join(head + jpeg(n) + b"\r\n" for n in range(IMAGES)) + b"--b--\r\n"
    whole = post("/classify", form, "multipart/form-data; boundary=b", _DEADLINE)
    outcomes = [ask(target, whole, 120.0) for _ in range(4)]
    yield from outcomes
    yield Finding("allowed_but_refused", sum(o.status != 200 for o in outcomes), most=0)


def _images_and_fetches(target: Target, origin: _Origin, url: str) -> Steps:
    """Hold images whose URLs are not answered, one a request."""
    body = json.dumps({"urls": [url]}).encode()
    request = post("/classify", body, "application/json", _DEADLINE)
    with closing(Held(target, "images_in_flight", 1)) as held:
        held.fill(request, 3 * IMAGES)
        yield from held.findings("images", IMAGES)
        origin.released.set()
        yield from held.answered({200}, 120.0)
    yield Finding("fetches_at_once", origin.most, most=OF_ONE_CLIENT, least=OF_ONE_CLIENT)


def _bytes(target: Target, stack: ExitStack) -> Steps:
    """Hold admitted bytes of requests that wait for a URL."""
    origin = stack.enter_context(closing(_Origin()))
    url = origin.start()
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="urls"\r\n\r\n' + url.encode(),
        b'\r\n--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n',
    )
    body = b"".join(parts) + bytes(_PIECE) + b"\r\n--b--\r\n"
    request = post("/classify", body, "multipart/form-data; boundary=b", _DEADLINE)
    with closing(Held(target, "bytes_in_flight", len(body))) as held:
        held.fill(request, 3 * (BYTES // len(body)))
        yield from held.findings("bytes", BYTES // len(body))
        origin.released.set()
        yield from held.answered({200}, 120.0)


def _arriving(target: Target) -> Steps:
    """Hold bodies whose last byte is missing."""
    request = post("/classify", bytes(_PIECE), "image/jpeg", _DEADLINE)[:-1]
    with closing(Held(target, "arriving_bytes", _PIECE)) as held:
        held.fill(request, 3 * (ARRIVING // _PIECE))
        yield from held.findings("arriving", ARRIVING // _PIECE)
        held.send(b"\0")
        yield from held.answered({415}, 60.0)


def _connections(target: Target) -> Steps:
    """Hold connections of one address, each in the middle of a body, so that none may be closed."""
    request = post("/classify", bytes(100), "image/jpeg", _DEADLINE)[:-1]
    with closing(Held(target, "arriving_bytes", 100)) as held:
        held.fill(request, 3 * CONNECTIONS)
        yield from held.findings("connections", CONNECTIONS)
        held.send(b"\0")
        yield from held.answered({415, 503}, 60.0)  # more images than fit
