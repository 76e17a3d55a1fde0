"""ZIPs and TARs that lie, as bodies of `/classify` and `/filter`, as parts of forms and as jobs.

Promise: each is answered below 500 within the deadline, whatever it unpacks to; a member that
cannot be read is the error of its own image; nothing is written outside the server's own files.
"""

import struct
from collections.abc import Iterator

from tests.chaos.attacks.odd_forms import form_of
from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.chaos.hostile import archives as a
from tests.pictures import jpeg

FLAGS = ("--data-folder", "{folder}/jobs")
_ZIP, _TAR, _GZIP = "application/zip", "application/x-tar", "application/gzip"
_PATHS = ("/classify", "/filter?name=invert")
_JOBS = ("/jobs?operation=classify",)
_HUGE = b"\x80" + b"\0" * 3 + b"\x7f" + b"\xff" * 7
"""The field of a size of 2⁶³ - 1 bytes in base 256."""


def _zips() -> Iterator[bytes]:
    photo = jpeg(1)
    yield a.zip_of([a.deflated(30_000_000)] * 15)
    yield a.zip_of([a.deflated(100_000_000)])
    yield a.overlapping(100, 30_000_000)
    yield a.overlapping(60_000, 30_000_000)
    yield a.nested(6)
    yield a.zip_of([a.Entry(name, photo) for name in a.NAMES])
    yield from (
        a.zip_of([a.Entry(b"a.jpg", photo, size)]) for size in (0, 1, 0x7FFFFFFF, 2**32 - 2)
    )
    yield from (a.zip_of([a.Entry(b"a.jpg", photo, packed_size=n)]) for n in (0, 1, 2**32 - 2))
    yield from (a.zip_of([a.Entry(b"a.jpg", photo, method=n)]) for n in (1, 8, 9, 12, 14, 93, 99))
    yield a.zip_of([a.Entry(b"a.jpg", photo, flags=n) for n in (1, 8, 0x40, 0x800, 0x2000, 0xFFFF)])
    yield a.zip_of([a.Entry(b"a.jpg", photo, attributes=0o120777 << 16)])  # a symbolic link
    yield a.zip_of([a.Entry(b"a.jpg", photo, attributes=kind << 28) for kind in range(16)])
    yield a.zip_of([a.Entry(b"a.jpg", photo, at=n) for n in (1, 10**6, 2**32 - 2)])
    yield a.zip_of([a.Entry(b"a.jpg", photo)], count=0)
    yield a.zip_of([a.Entry(b"a.jpg", photo)], count=0xFFFF)
    yield a.zip_of([a.Entry(b"a.jpg", photo)], end=b"")
    yield a.zip_of([a.Entry(b"a.jpg", photo)] * 50)[:-30]
    yield a.zip_of([a.Entry(b"a.jpg", photo, extra=b"\1\0" * 9000)])
    yield a.wide(b"")
    yield a.wide(b"\xff" * 24)
    yield a.wide(struct.pack("<3Q", 3, 3, 0))
    yield a.wide(struct.pack("<3Q", 2**63, 2**63, 0))
    yield a.wide(struct.pack("<3Q", 3, 3, 2**64 - 40))
    yield from (a.wide_end(n, n, n) for n in (0, 1, 2**32, 2**63, 2**64 - 1))
    yield a.wide_end(1, 60, 2**64 - 60)
    yield b"PK\x05\x06" * 8_000_000
    yield b"PK\x05\x06" + bytes(18)
    yield b"PK\x03\x04" + bytes(30_000_000)


def _tars() -> Iterator[bytes]:
    photo = jpeg(1)
    yield a.tar_of([(name, photo) for name in a.NAMES])
    yield a.tar_header(b"a.jpg", _HUGE) + bytes(1024)
    yield a.tar_header(b"a.jpg", b"\xff" * 12) + bytes(1024)  # minus one byte
    yield a.tar_header(b"a.jpg", b"\x80" + b"\xff" * 11) + bytes(1024)
    yield a.tar_header(b"a.jpg", b"7" * 11 + b"\0") + bytes(1024)
    yield a.tar_header(b"a.jpg", b" " * 12) + bytes(1024)
    yield a.tar_header(b".hidden", _HUGE) + bytes(1024)
    yield a.pax((b"path", b"../" * 20_000 + b"a.jpg")) + a.tar_of([(b"a.jpg", photo)])
    yield a.pax((b"size", b"9" * 19)) + a.tar_of([(b"a.jpg", photo)])
    yield a.pax((b"size", b"-1")) + a.tar_of([(b"a.jpg", photo)])
    yield a.pax((b"path", b"a" * 60_000)) * 400 + a.tar_of([(b"a.jpg", photo)])
    yield a.pax(*[(b"k", b"v")] * 8000) * 400 + a.tar_of([(b"a.jpg", photo)])
    yield (a.tar_header(b"pax", 65536, b"x") + b"2 " * 32768) * 400 + a.tar_of([(b"a.jpg", photo)])
    yield a.pax((b"path", b"a"), kind=b"g") * 20_000 + a.tar_of([(b"a.jpg", photo)])
    yield a.tar_header(b"pax", 100_000_000, b"x") + bytes(30_000_000)
    yield (a.tar_header(b"l", 60_000, b"L") + a.padded(b"a" * 60_000)) * 400
    yield (a.tar_header(b"l", 60_000, b"K") + a.padded(b"/" * 60_000)) * 400
    yield a.sparse(2**62)
    yield a.by_tarfile((b"1", b"2", b"3", b"4", b"5", b"6", b"7"))
    yield from (
        a.tar_header(b"a.jpg", 0, bytes([kind])) * 50 + bytes(1024) for kind in range(0, 256, 5)
    )
    yield a.tar_header(b".hidden", 0) * 60_000
    yield a.tar_header(b"a.jpg", 10_000_000) + bytes(1000)


def _packed_tars() -> Iterator[bytes]:
    photo, plain = jpeg(1), a.tar_of([(b"a.jpg", jpeg(1))])
    for kind in ("gz", "bz2", "xz"):
        yield a.packed_tar(kind, plain)[:-20]
        yield a.packed_tar(kind, plain) + b"garbage" * 1000
        yield a.packed_tar(kind, a.tar_header(b".hidden", 0) * 400_000)
        yield a.packed_tar(kind, a.packed_tar(kind, plain))
        yield a.packed_tar(kind, b"") * 1_000_000
        yield a.bomb(kind, 400 << 20, a.tar_of([(b"a.jpg", photo)])[:-1024])
    yield b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 100_000_000  # a name without an end
    yield b"\xfd7zXZ\x00" + b"\xff" * 1000
    yield b"BZh9" + b"\xff" * 1000


def zip_bodies(target: Target) -> Steps:
    """Send ZIP bombs, overlaps, false sizes, odd names and records as bodies of two endpoints."""
    bodies = [*_zips()]
    form = form_of(b"a.zip", a.overlapping(60_000, 30_000_000))
    yield None
    for body in bodies:
        for path in _PATHS:
            yield ask(target, post(path, body, _ZIP), 60.0)
    for path in _PATHS:
        yield ask(target, post(path, form, "multipart/form-data; boundary=b"), 60.0)


def tar_bodies(target: Target) -> Steps:
    """Send TARs of odd headers, plain and packed, as bodies of two endpoints."""
    bodies = [(body, _TAR) for body in _tars()] + [(body, _GZIP) for body in _packed_tars()]
    yield None
    for body, kind in bodies:
        for path in _PATHS:
            yield ask(target, post(path, body, kind), 60.0)


def archive_floods(target: Target) -> Steps:
    """Send a million empty members, and 200,000 headers without a file, eight at a time."""
    bodies = [
        (a.many_empty(1_000_000), _ZIP),
        (a.many_empty(1_000_000, told=1), _ZIP),
        (a.tar_header(b".hidden", 0) * 200_000, _TAR),
        (a.pax((b"path", b"a.jpg")) * 80_000, _TAR),
    ]
    requests = [post(path, *body) for body in bodies for path in _PATHS]
    yield None
    yield from ask_all(target, requests, 80.0, 3.0)


def packed_tar_bombs(target: Target) -> Steps:
    """Send eight compressed TARs that unpack to gigabytes of a file that is no image."""
    bodies = [a.bomb(kind, 6 << 30, filler=60_000_000) for kind in ("gz", "bz2")]
    requests = [post(path, body, _GZIP) for body in bodies for path in (*_PATHS, *_PATHS)]
    yield None
    yield from ask_all(target, requests, 80.0)


def job_archives(target: Target) -> Steps:
    """Make jobs of all these archives, the jobs' own limits in place of those of a request."""
    bodies = [(body, _ZIP) for body in _zips()]
    bodies += [(body, _TAR) for body in _tars()] + [(body, _GZIP) for body in _packed_tars()]
    yield None
    for body, kind in bodies:
        found = ask(target, post(_JOBS[0], body, kind), 60.0)
        yield found
        if found.status == 202:
            yield from _removed(target, found.excerpt)


def job_archive_floods(target: Target) -> Steps:
    """Make jobs of ZIPs of a million empty members, four at a time, in and against their order."""
    bodies = [a.many_empty(1_000_000, reverse=turned) for turned in (False, True)] * 2
    yield None
    for _ in range(2):
        for found in ask_all(target, [post(_JOBS[0], body, _ZIP) for body in bodies], 100.0):
            yield found
            if found.status == 202:
                yield from _removed(target, found.excerpt)


def job_packed_tar_bombs(target: Target) -> Steps:
    """Make eight jobs of compressed TARs that unpack to gigabytes."""
    bodies = [a.bomb(kind, 6 << 30, filler=60_000_000) for kind in ("gz", "bz2")]
    requests = [post(_JOBS[0], body, _GZIP) for body in bodies * 4]
    yield None
    yield from ask_all(target, requests, 200.0)


def _removed(target: Target, record: str) -> Steps:
    """Cancel a job, so that the next one may be made."""
    id_ = record.partition('"id":"')[2][:32]
    head = f"POST /jobs/{id_}/cancel HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    found = ask(target, head.encode(), 30.0)
    yield Finding("a job could not be cancelled", float(found.status != 200), most=0)
