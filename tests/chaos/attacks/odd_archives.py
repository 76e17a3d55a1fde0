"""ZIPs and TARs that lie, as bodies of `/classify` and `/filter` and as parts of forms.

Promise: each is answered below 500 within the deadline, whatever it unpacks to; a member that
cannot be read is the error of its own image; nothing is written outside the server's own files.
"""

import struct
from collections.abc import Iterator

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.chaos.hostile import archives as a
from tests.pictures import jpeg

_ZIP, _GZIP = "application/zip", "application/gzip"
_PATHS = ("/classify", "/filter?name=invert")
_FORM = (
    b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.zip"\r\n\r\n%b\r\n--b--\r\n'
)


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


def zip_bodies(target: Target) -> Steps:
    """Send ZIP bombs, overlaps, false sizes, odd names and records as bodies of two endpoints."""
    bodies = [*_zips()]
    form = _FORM % a.overlapping(60_000, 30_000_000)
    yield None
    for body in bodies:
        for path in _PATHS:
            yield ask(target, post(path, body, _ZIP), 60.0)
    for path in _PATHS:
        yield ask(target, post(path, form, "multipart/form-data; boundary=b"), 60.0)


def packed_tar_bombs(target: Target) -> Steps:
    """Send eight compressed TARs that unpack to gigabytes of a file that is no image."""
    bodies = [a.bomb(kind, 6 << 30, filler=60_000_000) for kind in ("gz", "bz2")]
    requests = [post(path, body, _GZIP) for body in bodies for path in (*_PATHS, *_PATHS)]
    yield None
    yield from ask_all(target, requests, 80.0)
