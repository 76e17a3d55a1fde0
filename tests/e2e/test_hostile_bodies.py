"""Bodies that cost a parser much: each is refused soon, shortly, and while others are answered."""

from collections.abc import Callable

import httpx
import pytest

from tests.pictures import png

JSON = {"Content-Type": "application/json"}
LONGEST_ANSWER = 100_000


def form(name: str, kind: str, content: bytes) -> tuple[dict[str, str], bytes]:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    return (
        {"Content-Type": "multipart/form-data; boundary=b"},
        head.encode() + content + b"\r\n--b--\r\n",
    )


def keys(start: bytes, count: int, end: bytes) -> bytes:
    return start + b",".join(b'"k%d":1' % n for n in range(count)) + end


BODIES: dict[str, Callable[[], tuple[dict[str, str], bytes]]] = {
    "punycode": lambda: form("ops", "text/plain; charset=punycode", b"a-" + b"b" * 1_000_000),
    "undefined": lambda: form("ops", "text/plain; charset=undefined", b"a"),
    "ops of lists": lambda: form("ops", "text/plain", b"[" + b"[]," * 300_000 + b"[]]"),
    "unknown keys": lambda: (JSON, keys(b"{", 300_000, b"}")),
    "lists": lambda: (JSON, b"[" + b"[]," * 5_000_000 + b"[]]"),
    "urls": lambda: (JSON, b'{"urls":[' + b'"u",' * 3_000_000 + b'"u"]}'),
    "images of lists": lambda: (JSON, b'{"images":[' + b"[[],[]]," * 1_500_000 + b"[]]}"),
    "lists within the bounds": lambda: (JSON, b'{"images":[' + b"[[],[]]," * 4_000 + b"[]]}"),
    "unknown keys of images": lambda: (JSON, keys(b'{"images":[{', 9_000, b"}]}")),
    "a deep nest": lambda: (JSON, b"[" * 1_000_000),
    "a long number": lambda: (JSON, b'{"top_k":' + b"1" * 4_000_000 + b"}"),
    "a long url": lambda: (JSON, b'{"urls":["http://a/' + b"x" * 900_000 + b'"]}'),
    "a long id": lambda: (JSON, b'{"images":[{"id":"' + b"x" * 900_000 + b'","url":"http://a/"}]}'),
    "half a surrogate": lambda: (JSON, b'{"urls":["\\ud800"]}'),
    "no utf-8": lambda: (JSON, b'{"urls":["\xff"]}'),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_a_short_client_s_error(client: httpx.Client, name: str) -> None:
    headers, body = BODIES[name]()
    for path in ("/classify", "/process"):
        reply = client.post(path, headers=headers, content=body)
        assert 400 <= reply.status_code < 500, reply.text[:500]
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert len(reply.content) < LONGEST_ANSWER
        assert len(reply.json().get("errors", [])) <= 20


def test_a_hostile_query_is_a_short_client_s_error(client: httpx.Client) -> None:
    numbers = ("1_0", "%201", "%D9%A3", "1e400", "NaN", "1" * 30000)
    many, long = "&".join(f"k{n}=1" for n in range(200)), "k" * 30000 + "=1"
    for query in (*(f"top_k={each}" for each in numbers), many, long):
        kind = {"Content-Type": "image/png"}
        reply = client.post(f"/classify?{query}", content=png(), headers=kind)
        assert reply.status_code == 422
        assert len(reply.content) < LONGEST_ANSWER
