"""Forms that are legal or nearly so: nested, with endless headers, odd names, near boundaries.

Promise: each is answered below 500, and none costs more CPU time than its bytes.
"""

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.pictures import jpeg

_KIND = "multipart/form-data; boundary=b"
_FILE = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n'
_END = b"\r\n--b--\r\n"
_PATHS = ("/classify", "/filter?name=invert", "/process")


def form_of(name: bytes, content: bytes) -> bytes:
    """Return a form of one file, with the boundary `b`."""
    return _FILE.replace(b"a.jpg", name) + b"\r\n" + content + _END


def form_nested(target: Target) -> Steps:
    """Nest multipart/mixed in forms, 1,000 levels deep and 200,000 levels deep."""
    bodies = []
    for levels in (2, 1000, 200_000):
        inner = b"".join(
            b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
            for n in range(levels)
        )
        ends = b"".join(b"\r\n--b%d--" % n for n in reversed(range(levels)))
        bodies.append(_FILE + inner + b"\r\n" + jpeg(1) + ends + _END)
    same = _FILE + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n" * 3_000_000
    requests = [post(path, body, _KIND) for body in (*bodies, same) for path in _PATHS]
    yield None
    yield from ask_all(target, requests, 80.0, 3.0)


def form_long_headers(target: Target) -> Steps:
    """Send parts with header lines of megabytes, with a million lines, and without an end."""
    photo = b"\r\n\r\n" + jpeg(1) + _END
    long = b"a" * 5_000_000
    heads = (
        b"X-A: " + long,
        long + b": a",
        b"Content-Type: image/jpeg; " + b"a=b; " * 1_000_000,
        b"X-A: b\r\n" * 1_000_000,
        b"X-A: b\r\n " * 1_000_000,
        b"X-A: b\r\n\t" * 600_000,
        b"Content-Disposition: form-data; name=files; " * 1000,
        b"\x00" * 5_000_000,
        b"\r" * 5_000_000,
        b"\n" * 5_000_000,
        b":" * 5_000_000,
        b"X-A:\r\n" * 7,
    )
    requests = [post("/classify", _FILE + head + photo, _KIND) for head in heads]
    requests.append(post("/classify", b"--b\r\n" + b'a; "' * 2_000_000, _KIND))
    yield None
    yield from ask_all(target, requests, 80.0, 3.0)


_NAMES = (
    b"filename*=UTF-8''a%00b.jpg",
    b"filename*=utf-8'en'%e2%82%ac%20rates",
    b"filename*=punycode''" + b"a" * 3000,
    b"filename*=utf-16''%ff%fe%00",
    b"filename*=''",
    b"filename*='''''''''",
    b"filename*=UTF-8''" + b"%" * 3000,
    b"filename*=UTF-8''%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    b"filename*0=a; filename*1=b; filename*2*=UTF-8''c",
    b"; ".join(b"filename*%d=a" % n for n in range(300)),
    b"filename*99999999999999999999=a",
    b"filename*-1=a",
    b"filename=\"a.jpg\"; filename*=UTF-8''b.jpg; filename=c.jpg",
    b'filename="a%0D%0AX-A: b"',
    b'filename="a%22; filename=%22b"',
    b'filename="\\"; filename=\\"b"',
    b'filename="' + b"\\" * 3000 + b'"',
    b'filename="' + b'\\"' * 1500,
    b'filename="' + b"%22" * 1000 + b'"',
    b'filename="\xff\xfe\x80"',
    b'filename="\xe2\x80\xae\xef\xbb\xbf\xed\xa0\x80"',
    b'filename="a\x00b\x1b[31m"',
    b'filename="C:\\x\\y.jpg"',
    b'filename="\\\\host\\share\\' + b"a\\" * 1400 + b'"',
    b"filename=" + b'"a"' * 1000,
    b"filename" * 400,
    b"filename==;;;==;filename;=",
    b'filename="CON"',
    b'filename="../../../../../etc/passwd"',
    b'filename="=?utf-8?B?' + b"A" * 3000 + b'?="',
)
"""Spellings of a file's name: RFC 5987, RFC 2231, RFC 2047, quotes, escapes, paths, controls."""


def form_names(target: Target) -> Steps:
    """Name files in every hostile spelling, RFC 5987 among them, for each form of answer."""
    photo = b"\r\n\r\n" + jpeg(1) + b"\r\n"
    accepts = ("application/json", "application/zip", "multipart/mixed", "application/x-ndjson")
    parts = [
        b"--b\r\nContent-Disposition: form-data; name=files; " + name + photo for name in _NAMES
    ]
    yield None
    for accept in accepts:
        more = f"Accept: {accept}\r\n"
        body = b"".join(parts)[:-2] + _END
        yield ask(target, post("/filter?name=invert", body, _KIND, more), 60.0)
        for part in parts:
            yield ask(target, post("/classify", part[:-2] + _END, _KIND, more), 30.0)


def form_empty(target: Target) -> Steps:
    """Send millions of empty parts, with and without names, headers and line ends."""
    parts = (
        b"--b\r\n\r\n\r\n",
        b"--b\r\n\r\n",
        b"--b\r\nContent-Disposition: form-data\r\n\r\n\r\n",
        b"--b\r\nContent-Disposition: form-data; name=files; filename=\r\n\r\n\r\n",
        b'--b\r\nContent-Disposition: form-data; name="urls"\r\n\r\n\r\n',
    )
    bodies = [part * (30_000_000 // len(part)) + b"--b--\r\n" for part in parts]
    bodies += [b"\r\n" * 15_000_000, b"--b--\r\n" * 4_000_000, b"-" * 30_000_000]
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND) for body in bodies], 80.0, 3.0)


def form_near_boundaries(target: Target) -> Steps:
    """Send 30 MB of what a boundary of 200 characters begins with, in several periods."""
    boundary = "a" * 200
    kind = f"multipart/form-data; boundary={boundary}"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    pieces = (
        b"\r\n--" + b"a" * 199 + b"b",
        b"\r\n--" + b"a" * 199,
        b"\r\n--" + b"a" * 100,
        b"\r\n-",
        b"\r",
        b"\r\n--" + b"a" * 200 + b"-",
        b"\n--" + b"a" * 200,
        b"a",
    )
    bodies = [head.encode() + piece * (30_000_000 // len(piece)) for piece in pieces]
    yield None
    yield from ask_all(target, [post("/classify", body, kind) for body in bodies], 80.0, 3.0)
