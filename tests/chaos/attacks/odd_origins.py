"""Origins that lead a fetch to internal addresses, or answer what no origin answers.

One address of this machine, 127.0.0.2, is allowed and redirects to the others, which stand for an
internal network. Promise: no connection reaches them, by any spelling; whatever an origin answers
is the error of its URL, never one of the request.
"""

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.chaos.harness.origin import listening

ALLOWED = "127.0.0.2"
FLAGS = ("--fetch-allowed-networks", f"{ALLOWED}/32", "--fetch-ports", "1-65535")
_BATCH = 16

INTERNAL = (
    *("http://127.0.0.1:{p}/", "http://127.1:{p}/", "http://127.0.1:{p}/", "http://127.127.0.9:{p}/"),
    *("http://2130706433:{p}/", "http://0x7f000001:{p}/", "http://0x7f.0.0.1:{p}/"),
    *("http://0177.0.0.1:{p}/", "http://017700000001:{p}/", "http://0000127.0.0.1:{p}/"),
    *("http://127.0.0.1.:{p}/", "http://127.0.0.1..:{p}/", "http://127.0.0.%31:{p}/"),
    *("http://0.0.0.0:{p}/", "http://0:{p}/", "http://0x0:{p}/", "http://00:{p}/", "http://0.:{p}/"),
    *("http://localhost:{p}/", "http://LOCALHOST.:{p}/", "http://ip6-localhost:{p}/"),
    *("http://[::1]:{p}/", "http://[::]:{p}/", "http://[0:0:0:0:0:0:0:1]:{p}/"),
    *("http://[::ffff:127.0.0.1]:{p}/", "http://[::ffff:7f00:1]:{p}/", "http://[::127.0.0.1]:{p}/"),
    *("http://[0:0:0:0:0:ffff:127.0.0.1]:{p}/", "http://[::ffff:0:127.0.0.1]:{p}/"),
    *("http://[64:ff9b::127.0.0.1]:{p}/", "http://[64:ff9b::7f00:1]:{p}/"),
    *("http://[64:ff9b:1::7f00:1]:{p}/", "http://[2002:7f00:1::]:{p}/", "http://[::1%25lo]:{p}/"),
    *("http://[2001:0:7f00:1::]:{p}/", "http://[fe80::1%25eth0]:{p}/", "http://[fd00::1]:{p}/"),
    *("http://[fe80::5efe:127.0.0.1]:{p}/", "http://[2000::5efe:127.0.0.1]:{p}/"),
    *("http://①②⑦.⓪.⓪.①:{p}/", "http://127。0。0。1:{p}/", "http://１２７.0.0.1:{p}/", "http://ⓛocalhost:{p}/"),
    *("http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://100.100.100.200/"),
    *("http://127.0.0.2@127.0.0.1:{p}/", "http://127.0.0.1:{p}#@127.0.0.2/", "http:127.0.0.1:{p}"),
    *("http://127.0.0.2:80@127.0.0.1:{p}/", "http://127.0.0.1:{p}\\@127.0.0.2/", "http:///127.0.0.1:{p}/"),
    *("//127.0.0.1:{p}/", "\\\\127.0.0.1:{p}\\", "/\\127.0.0.1:{p}/", "http:\\\\127.0.0.1:{p}/"),
    *("http://127.0.0.1:{p}\t/", " http://127.0.0.1:{p}/", "ht\ntp://127.0.0.1:{p}/", "HTTP://127.0.0.1:{p}/"),
    *("file:///etc/passwd", "gopher://127.0.0.1:{p}/", "ftp://127.0.0.1:{p}/", "unix:///run/a.sock"),
    *("data:image/png;base64,iVBORw0KGgo=", "jar:http://127.0.0.1:{p}/!/", "javascript:1"),
)  # fmt: skip

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n"
_BOMB = gzip.compress(bytes(30_000_000))


def _moved(location: bytes, status: int = 302) -> bytes:
    return b"HTTP/1.1 %d Found\r\nContent-Length: 0\r\nLocation: %b\r\n\r\n" % (status, location)


_ANSWERS: tuple[bytes, ...] = (
    b"",
    b"\r\n",
    b"<html>no HTTP at all</html>",
    b"HTTP/0.9 200\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 99999 Odd\r\n\r\n",
    b"HTTP/1.1 -1 Odd\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 304 Not Modified\r\n\r\n",
    _HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_BOMB) + _BOMB,
    _HEAD + b"Content-Encoding: br, gzip, deflate, zstd\r\nContent-Length: 1\r\n\r\na",
    _HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFFFF\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 300_000 + b"\r\na\r\n0\r\n\r\n",
    _HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    _HEAD + b"Content-Length: 999999999999999999\r\n\r\nabc",
    _HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc",
    _HEAD + b"Content-Length: \xb2\r\n\r\nab",
    _HEAD + b"Content-Length: -1\r\n\r\n",
    _HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    _HEAD + b"Content-Length: 5\r\n\r\nab",
    _HEAD + b"X: " + b"\xff" * 60_000 + b"\r\n\r\n",
    _HEAD + b"\x00\x01\x02: a\r\n\r\n",
    _HEAD + b" folded\r\n" * 5000 + b"\r\n",
    _HEAD + b"A: b\r\n" * 5000 + b"\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: " + b"9" * 5000 + b"\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: -1\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: \xb2\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: Fri, 99 Zzz 9999 99:99:99 GMT\r\n"
    b"Date: Fri, 31 Dec 0000 00:00:00 GMT\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
    *(
        _moved(each)
        for each in (
            *(b"", b"/", b"?", b"#", b"//", b"///", b"http:", b"http://", b"http://[", b"http://]"),
            *(b"http://a..b/", b"http://xn--/", b"http://xn--a\xff/", b"http://\xff\xfe/"),
            *(b"http://a:99999999/", b"http://a:-1/", b"http://a:0/", b"http://a:b/", b"\xe2\x82"),
            *(b"http://" + b"a." * 5000, b"http://" + b"a" * 50_000, b"/" + b"a" * 60_000),
            *(b"http://%00/", b"http://a%2f@b/", b"http://a\x7fb/", b"/" + b"../" * 20_000),
        )
    ),
    *(_moved(b"/again", status) for status in (301, 302, 303, 307, 308, 300, 305, 306)),
)


@contextmanager
def origin(address: str, answer: Callable[[str], bytes], seen: list[str]) -> Iterator[int]:
    """Return an origin that notes each connection's first line and answers by its path."""

    def talk(connection: socket.socket) -> None:
        connection.settimeout(10)
        words = connection.recv(65536).decode("latin-1").split()
        seen.append(" ".join(words[:2]))
        connection.sendall(answer(words[1] if len(words) > 1 else "/"))

    with listening(address, talk) as port:
        yield port


def _asked(target: Target, urls: list[str]) -> Steps:
    for start in range(0, len(urls), _BATCH):
        body = json.dumps({"urls": urls[start : start + _BATCH]}).encode()
        yield ask(target, post("/classify", body, "application/json"), 60.0)


def origin_redirects(target: Target) -> Steps:
    """Lead fetches to internal addresses in 70 spellings, directly and by chains of redirects."""
    inside: list[str] = []
    outside: list[str] = []
    with origin("127.0.0.1", lambda _: _moved(b"/"), inside) as port:
        internal = [each.format(p=port) for each in INTERNAL]

        def lead(path: str) -> bytes:
            steps, _, number = path.strip("/").partition("-")
            if not number.isdigit():
                return _moved(b"/")
            last = internal[int(number)].encode()
            return _moved(b"/%d-%b" % (int(steps) - 1, number.encode()) if int(steps) else last)

        with origin(ALLOWED, lead, outside) as allowed:
            numbers = range(len(internal))
            chains = [f"http://{ALLOWED}:{allowed}/{s}-{n}" for s in (0, 3) for n in numbers]
            yield None
            yield from _asked(target, internal)
            yield from _asked(target, chains)
    yield Finding("internal_connections", len(inside), most=0)
    yield Finding("redirects_followed", len(outside), least=len(internal))


def origin_answers(target: Target) -> Steps:
    """Answer fetched URLs with odd heads, lengths, codings, bombs, redirects and nothing."""
    seen: list[str] = []

    def answer(path: str) -> bytes:
        number = path.strip("/")
        return _ANSWERS[int(number)] if number.isdigit() else _moved(b"/again")

    with origin(ALLOWED, answer, seen) as port:
        yield None
        urls = [f"http://{ALLOWED}:{port}/{n}" for n in range(len(_ANSWERS))]
        yield from _asked(target, urls)
    yield Finding("answers_given", len(seen), least=len(_ANSWERS))
