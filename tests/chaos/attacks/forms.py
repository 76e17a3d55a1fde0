"""Forms of very many parts.

Promise: the form is refused at its limit of parts, and the event loop is not held.
"""

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

_KIND = "multipart/form-data; boundary=b"


def _field(name: str, value: bytes, kind: str = "text/plain") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def _form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def form_parts(target: Target) -> Steps:
    """Send a form of 500,000 empty parts."""
    body = _form(_field("a", b"") * 500_000)
    yield None
    yield from ask_all(target, [post("/classify", body, _KIND)] * 2, 80.0)
