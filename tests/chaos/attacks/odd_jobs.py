"""Jobs of bad manifests, by the thousand, and of bodies that fill the disk or never end.

Promise: a wrong manifest is refused while it is read, in bounded memory; one address has a bounded
number of jobs and of arriving bodies; the data folder holds hardly more than its limit, and nothing
is left over of a body that was refused.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tests.chaos.attacks.odd_streams import chunk, endless, head, image_uri, together
from tests.chaos.harness.attack import Finding, Outcome, Steps, Target
from tests.chaos.harness.http import ask, ask_all, connect, post

_LINES, _LIST = "application/x-ndjson", "application/json"
_MAKE = "/jobs?operation=classify"

FLAGS = ("--data-folder", "{folder}/jobs")
LIMITED = (*FLAGS, "--max-data-bytes", "60000000")


def job_manifests(target: Target) -> Steps:
    """Send manifests of bad lines, endless ones, millions of items, deep lists, 16 at a time."""
    item = b'{"url":"http://127.0.0.1/"}'
    pieces = (
        b"a" * 65536,
        b'{"data": "' + b"A" * 65536,
        b"\n" * 65536,
        (item + b"\n") * 2000,
    )
    wrong = (
        *(b"null", b"[]", b"{}", b'{"url": 1}', b'{"url": "a", "path": "b"}', b'{"path": "a.jpg"}'),
        *(
            b'{"url": "a", "x": 1}',
            b"[" * 100_000,
            b'{"a":' * 60_000,
            b"9" * 60_000,
            b"\xff",
            b"\x00",
        ),
        *(b'{"id": "' + b"a" * 300 + b'", "url": "a"}', b'{"url": "' + b"a" * 60_000 + b'"}'),
    )
    bodies = [(line + b"\n") * max(1, 4_000_000 // len(line)) for line in wrong]
    lists = (
        b"[" * 5_000_000,
        b"[" + b"[]," * 5_000_000 + b"[]]",
        b"[" + b"{}," * 5_000_000 + b"{}]",
        b"[" + b'{"url": ' * 500_000,
        b'["' + b"\\" * 20_000_000,
        b" " * 30_000_000 + b"[]",
        b"[" + item + b"]" * 1_000_000,
    )
    requests = [post(_MAKE, body, _LINES) for body in bodies]
    requests += [post(_MAKE, body, _LIST) for body in lists]
    yield None
    for start in range(0, len(requests), 8):
        yield from ask_all(target, requests[start : start + 8], 60.0)
    for piece in pieces:
        yield from together(
            endless(target, head(_MAKE, _LINES), piece, 80_000_000, 30.0) for _ in range(16)
        )


def job_forms(target: Target) -> Steps:
    """Send forms without an archive, with two, of odd names, cut off, and of endless parts."""
    part = b'--b\r\nContent-Disposition: form-data; name="%b"; filename="a"\r\n\r\n%b\r\n'
    names = (
        b"manifest",
        b"archive",
        b"../archive",
        b"/etc/passwd",
        b"",
        b"manifest.sent",
        b"a" * 9000,
    )
    bodies = [part % (name, b'{"path": "a"}') + b"--b--\r\n" for name in names]
    bodies += [part % (name, b"") * 2 + b"--b--\r\n" for name in names]
    bodies += [part % (b"archive", b"PK\x05\x06" + bytes(18)) + part % (b"manifest", b"{}" * 10**6)]
    bodies += [part % (b"archive", bytes(20_000_000)), part % (b"manifest", b"[" * 20_000_000)]
    kind = "multipart/form-data; boundary=b"
    yield None
    yield from ask_all(target, [post(_MAKE, body, kind) for body in bodies], 60.0, 3.0)


def job_flood(target: Target) -> Steps:
    """Ask for 10,000 jobs from one address, 32 at a time, and for lists of them."""
    line = b'{"data": "%b"}\n' % image_uri()
    request = post(_MAKE, line, _LINES)
    listing = b"GET /jobs?limit=100 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    yield None
    for _ in range(10_000 // 33 + 1):
        yield from ask_all(target, [request] * 32 + [listing], 60.0)
    held = sum(each.stat().st_blocks * 512 for each in Path(target.folder).rglob("*"))
    yield Finding("mb_on_the_disk", held / 1e6)


def job_bodies(target: Target) -> Steps:
    """Hold 64 bodies of jobs just above the minimum rate, while another address makes a job."""
    first = head(_MAKE, "application/zip") + chunk(b"PK\x03\x04" + bytes(2000))
    other = replace(target, source="127.0.0.77")
    line = b'{"data": "%b"}\n' % image_uri()
    made: list[Outcome] = []
    yield None
    with _trickling(target, 64, first):
        for _ in range(10):
            time.sleep(1.0)
            made.append(ask(other, post(_MAKE, line, _LINES), 30.0))
    yield from made
    refused = sum(each.status != 202 for each in made)
    yield Finding("jobs_of_another_address_refused", refused, most=0)


def job_disk(target: Target) -> Steps:
    """Send 24 archives of unknown length and 100 MB each to a data folder of at most 60 MB."""
    folder = Path(target.folder)
    seen = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            seen[0] = max(seen[0], _held(folder))

    yield None
    watching = threading.Thread(target=watch)
    watching.start()
    piece = os.urandom(1 << 16)
    calls = [
        endless(target, head(_MAKE, "application/zip"), piece, 100_000_000, 30.0) for _ in range(24)
    ]
    yield from together(calls)
    ended.set()
    watching.join()
    yield Finding("mb_in_the_data_folder", seen[0] / 1e6, most=64.0)
    time.sleep(1.0)
    yield Finding("mb_left_over", _held(folder / "jobs" / "jobs") / 1e6, most=1.0)


@contextmanager
def _trickling(target: Target, count: int, first: bytes) -> Iterator[None]:
    """Hold bodies of which 2,000 bytes are sent every second."""
    ended = threading.Event()

    def send() -> None:
        piece = chunk(bytes(2000))
        while not ended.wait(1.0):
            for each in held:
                with suppress(OSError):
                    each.send(piece)

    held = [connect(target) for _ in range(count)]
    for each in held:
        each.sendall(first)
        each.setblocking(False)
    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()
        for each in held:
            each.close()


def _held(folder: Path) -> int:
    """Return the bytes of all files below a folder that are on the disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total
