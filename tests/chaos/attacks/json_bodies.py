"""JSON bodies of millions of URLs, and of lists nested millions deep; forms of very many parts.

Promise: the body is refused while it is read, with a short answer.
"""

from collections.abc import Callable

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

_FORM = "multipart/form-data; boundary=b"


def _deep(depth: int = 5_000_000) -> bytes:
    return b'{"images": ' + b"[" * depth + b"]" * depth + b"}"


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "json_urls": (
        "Six million URLs",
        lambda: b'{"urls": [' + b'"a",' * 5_999_999 + b'"a"]}',
    ),
    "json_deep": ("Lists nested five million deep", _deep),
}


def attack(name: str) -> Callable[[Target], Steps]:
    """Return the attack with one kind of body, at two routes."""
    about, build = BODIES[name]

    def run(target: Target) -> Steps:
        body = build()
        paths = ("/classify", "/filter", "/process")
        requests = [post(path, body, "application/json") for path in paths]
        yield None
        yield from ask_all(target, requests, 80.0, 3.0)

    run.__name__ = name
    run.__doc__ = f"{about}."
    return run


def form_parts(target: Target) -> Steps:
    """Send a form of 500,000 empty parts."""
    head = b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: text/plain\r\n\r\n'
    request = post("/classify", (head + b"\r\n") * 500_000 + b"--b--\r\n", _FORM)
    yield None
    yield from ask_all(target, [request] * 2, 80.0)
