"""Small rules of HTTP that the old code broke, each asked once.

Promise: a missing Host is 400, `sigma=1_0` is 422, a client of HTTP/1.0 gets no chunks, HEAD works
where GET does, 405 names every method in `Allow`, and an early 413 can be read.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import answer, ask, connect, post
from tests.pictures import jpeg


def _raw(method: str, path: str, version: str = "1.1", host: str = "Host: a\r\n") -> bytes:
    return f"{method} {path} HTTP/{version}\r\n{host}Connection: close\r\n\r\n".encode()


def protocol_rules(target: Target) -> Steps:
    """Ask what a careful client would: missing Host, two Hosts, HEAD, Allow, odd numbers."""
    photo = jpeg(1)
    yield None
    expected = (
        ("missing_host", _raw("GET", "/livez", host=""), {400}),
        ("two_hosts", _raw("GET", "/livez", host="Host: a\r\nHost: b\r\n"), {400}),
        ("bad_host", _raw("GET", "/livez", host="Host: a b/c\r\n"), {400}),
        ("http_1_0_without_host", _raw("GET", "/livez", "1.0", ""), {200}),
        ("number_1_0", post("/filter?name=gaussian_blur&sigma=1_0", photo, "image/jpeg"), {422}),
        ("number_arabic", post("/classify?top_k=%D9%A1", photo, "image/jpeg"), {422}),
        ("two_lengths", b"POST /classify HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
         b"Content-Length: 2\r\n\r\nab", {400}),
        ("length_and_chunks", b"POST /classify HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    )  # fmt: skip
    for name, request, statuses in expected:
        found = ask(target, request, 20.0)
        yield Finding(f"{name}_wrong", found.status not in statuses, most=0)
    for path in ("/", "/docs", "/models", "/filters", "/metrics", "/openapi.json", "/readyz"):
        found = ask(target, _raw("HEAD", path), 20.0)
        name = path.strip("/") or "root"
        yield Finding(f"head_{name}_wrong", found.status != 200 or found.body_bytes > 0, most=0)
    found = ask(target, _raw("DELETE", "/livez"), 20.0)
    allow = b"get" in found.head.lower() and b"head" in found.head.lower()
    yield Finding("allow_wrong", found.status != 405 or not allow, most=0)


def http_1_0(target: Target) -> Steps:
    """Ask for a stream of records as a client of HTTP/1.0."""
    photo = jpeg(1)
    yield None
    head = (
        "POST /classify HTTP/1.0\r\nAccept: application/x-ndjson\r\nContent-Type: image/jpeg\r\n"
        f"Content-Length: {len(photo)}\r\n\r\n"
    )
    found = ask(target, head.encode() + photo, 30.0)
    yield found
    chunked = b"transfer-encoding" in found.head.lower() or not found.excerpt.startswith("{")
    yield Finding("chunked", chunked, most=0)


def early_413(target: Target) -> Steps:
    """Announce too large a body, send it all, and read the answer afterwards."""
    body = bytes(1 << 20)
    yield None

    def one(chunked: bool) -> Outcome:
        started = time.monotonic()
        framing = "Transfer-Encoding: chunked" if chunked else "Content-Length: 400000000"
        framing += "\r\nContent-Type: image/jpeg"  # without it chunks are 415 before they count
        with connect(target) as connection:
            head = f"POST /classify HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n".encode()
            try:
                connection.sendall(head)
                for _ in range(300):
                    connection.sendall(b"100000\r\n" + body + b"\r\n" if chunked else body)
            except OSError:
                pass
            return answer(connection, started, 30.0)

    with ThreadPoolExecutor(4) as pool:
        for outcome in pool.map(one, (False, False, True, True)):
            yield outcome
            yield Finding("not_413", outcome.status != 413, most=0)


def slow_readers(target: Target) -> Steps:
    """Ask for 64 large answers and read none of them."""
    photo = jpeg(1, 3000, 2000)
    request = post("/filter?name=noise&format=png&png_level=0", photo, "image/jpeg")
    yield None
    started = time.monotonic()
    held = []
    for _ in range(64):
        connection = connect(target)
        connection.sendall(request)
        held.append(connection)
    time.sleep(20)
    for connection in held:
        yield answer(connection, started, 60.0)
        connection.close()
