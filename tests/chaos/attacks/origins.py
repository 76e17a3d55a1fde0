"""Origins of fetched URLs that do not behave, and ports that no image is at.

Old effect: 100,000 interim answers were read; any port of a public address was connected to.
Promise: a few interim answers, then the URL's own error; only ports of the allow-list.
"""

import json
import socket

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask_all, post
from tests.chaos.harness.origin import Talk, listening


def _urls(*urls: str) -> bytes:
    return post("/classify", json.dumps({"urls": list(urls)}).encode(), "application/json")


def _fetched(target: Target, answer: Talk) -> Steps:
    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        answer(connection)

    with listening("127.0.0.1", talk) as port:
        yield None
        request = _urls(*(f"http://127.0.0.1:{port}/{n}" for n in range(8)))
        yield from ask_all(target, [request] * 2, 80.0)


def origin_continue(target: Target) -> Steps:
    """Answer a fetched URL with 100,000 times `100 Continue`."""

    def answer(connection: socket.socket) -> None:
        for _ in range(100):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    yield from _fetched(target, answer)


def origin_headers(target: Target) -> Steps:
    """Answer a fetched URL with headers without end."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for _ in range(60_000):
            connection.sendall(b"X-A: " + b"a" * 1000 + b"\r\n")

    yield from _fetched(target, answer)


def origin_chunks(target: Target) -> Steps:
    """Answer a fetched URL in chunks of one byte."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3000):
            connection.sendall(b"1\r\na\r\n" * 1000)

    yield from _fetched(target, answer)


_PROBE = '{"urls": ["http://%s"]}'


def origin_ports(target: Target) -> Steps:
    """Ask for URLs at ports of other services of public addresses."""
    hosts = ("93.184.216.34:22", "93.184.216.34:6379", "93.184.216.34:25", "8.8.8.8:53")
    requests = [_urls(f"http://{host}/a.jpg") for host in hosts]
    yield None
    tried = 0
    for outcome in ask_all(target, requests, 80.0):
        tried += "address_refused" not in outcome.excerpt and outcome.status == 200
        tried += outcome.status in (502, 504)
        yield outcome
    yield Finding("ports_connected_to", tried, most=0)
