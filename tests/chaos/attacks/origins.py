"""Origins that lead a fetch to internal addresses.

One address of this machine, 127.0.0.2, is allowed and redirects to the others, which stand for an
internal network. Promise: no connection reaches them, by any spelling. `tests/unit/app/fetch` has
further spellings, and the origins that answer slowly, without end, or with too much.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post

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


def _moved(location: bytes, status: int = 302) -> bytes:
    return b"HTTP/1.1 %d Found\r\nContent-Length: 0\r\nLocation: %b\r\n\r\n" % (status, location)


@contextmanager
def origin(address: str, answer: Callable[[str], bytes], seen: list[str]) -> Iterator[int]:
    """Run an origin that notes each connection's first line and answers by its path."""
    listener = socket.create_server((address, 0), backlog=512)

    def one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(10)
            words = connection.recv(65536).decode("latin-1").split()
            seen.append(" ".join(words[:2]))
            connection.sendall(answer(words[1] if len(words) > 1 else "/"))

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield listener.getsockname()[1]


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
