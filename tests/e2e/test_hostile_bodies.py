"""Bodies that cost a parser much: each is refused soon, shortly, and while others are answered."""

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


BODIES = {
    "punycode": form("ops", "text/plain; charset=punycode", b"a-" + b"b" * 1_000_000),
    "undefined": form("ops", "text/plain; charset=undefined", b"a"),
    "ops of lists": form("ops", "text/plain", b"[" + b"[]," * 300_000 + b"[]]"),
    "unknown keys": (JSON, b"{" + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}"),
    "lists": (JSON, b"[" + b"[]," * 5_000_000 + b"[]]"),
    "urls": (JSON, b'{"urls":[' + b'"u",' * 3_000_000 + b'"u"]}'),
    "images of lists": (JSON, b'{"images":[' + b"[[],[]]," * 1_500_000 + b"[]]}"),
    "lists within the bounds": (JSON, b'{"images":[' + b"[[],[]]," * 4_000 + b"[]]}"),
    "unknown keys of images": (
        JSON,
        b'{"images":[{' + b",".join(b'"k%d":1' % n for n in range(9_000)) + b"}]}",
    ),
    "a deep nest": (JSON, b"[" * 1_000_000),
    "a long number": (JSON, b'{"top_k":' + b"1" * 4_000_000 + b"}"),
    "a long url": (JSON, b'{"urls":["http://a/' + b"x" * 900_000 + b'"]}'),
    "a long id": (JSON, b'{"images":[{"id":"' + b"x" * 900_000 + b'","url":"http://a/"}]}'),
    "half a surrogate": (JSON, b'{"urls":["\\ud800"]}'),
    "no utf-8": (JSON, b'{"urls":["\xff"]}'),
}


@pytest.mark.parametrize("path", ["/classify", "/filter", "/process"])
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_a_short_client_s_error(
    client: httpx.Client, name: str, path: str
) -> None:
    headers, body = BODIES[name]
    reply = client.post(path, headers=headers, content=body)
    assert 400 <= reply.status_code < 500, reply.text[:500]
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert len(reply.content) < LONGEST_ANSWER
    assert len(reply.json().get("errors", [])) <= 20


@pytest.mark.parametrize(
    "query",
    [
        "top_k=1_0",
        "top_k=%201",
        "top_k=%D9%A3",
        "top_k=1e400",
        "top_k=NaN",
        "&".join(f"k{n}=1" for n in range(200)),
        "k" * 30000 + "=1",
        "top_k=" + "1" * 30000,
    ],
    ids=["underscore", "space", "arabic", "1e400", "nan", "many", "long name", "long value"],
)
def test_a_hostile_query_is_a_short_client_s_error(client: httpx.Client, query: str) -> None:
    reply = client.post(f"/classify?{query}", content=png(), headers={"Content-Type": "image/png"})
    assert reply.status_code == 422
    assert len(reply.content) < LONGEST_ANSWER
