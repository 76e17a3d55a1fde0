"""Forms that name an expensive text codec, or have very many parts.

Old effect: `charset=punycode` is quadratic and ran on the event loop, 51 s for 1 MB;
`charset=undefined` ended as 500. Promise: 400 at once for all codecs but UTF-8, ASCII, Latin-1.
"""

import base64

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

_KIND = "multipart/form-data; boundary=b"


def _field(name: str, value: bytes, kind: str = "text/plain") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def _form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def form_punycode(target: Target) -> Steps:
    """Name punycode as the codec of a form field of 1 MB."""
    value = b"-" + b"a" * 1_000_000
    body = _form(_field("urls", value, "text/plain; charset=punycode"))
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND)] * 2, 80.0)


def form_codecs(target: Target) -> Steps:
    """Name each of Python's odd codecs for a form field of 1 MB."""
    names = ["undefined", "idna", "unicode_escape", "utf-7", "raw_unicode_escape", "hex", "zlib"]
    names += ["bz2", "rot13", "uu", "utf-16", "mbcs", "utf-8-sig", "a" * 1000, "\x00", "big5hkscs"]
    value = b"a-" * 500_000
    bodies = [_form(_field("urls", value, f"text/plain; charset={name}")) for name in names]
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND) for body in bodies], 80.0)


def form_parts(target: Target) -> Steps:
    """Send a form of 500,000 empty parts."""
    body = _form(_field("a", b"") * 500_000)
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND)] * 2, 80.0)


def form_boundaries(target: Target) -> Steps:
    """Send a form of 60 MB of what is almost a boundary."""
    body = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    body += b"\r\n--" * 15_000_000 + b"\r\n--b--\r\n"
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND)] * 2, 80.0)


def form_fields(target: Target) -> Steps:
    """Send a hundred text fields of 1 MB that no route has."""
    body = _form(*(_field(f"k{n}", b"a" * 1_000_000) for n in range(100)))
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND)] * 2, 80.0)


def data_uri(target: Target) -> Steps:
    """Send data URIs of 32 MiB, of what is no image."""
    data = base64.b64encode(bytes(32 << 20)).decode()
    body = f'{{"images": [{{"data": "data:image/png;base64,{data}"}}]}}'.encode()
    yield None
    yield from ask_all(target, [post("/classify", body, "application/json")] * 3, 80.0, 3.0)
