"""Requests of the Open Inference Protocol that grow when they are decompressed.

Promise: the request is refused with a short answer, and memory stays bounded.
"""

import gzip
from collections.abc import Callable, Iterator

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

PATH = "/v2/models/resnet18/infer"
JSON = "application/json"
HEADER = "Inference-Header-Content-Length"

HUGE = 1 << 62


def _bombs() -> Iterator[bytes]:
    packed = gzip.compress(b" " * (1 << 30), 6)
    yield post(PATH, packed, JSON, "Content-Encoding: gzip\r\n")
    raw = gzip.compress(b'{"inputs": []}' + b"\0" * (1 << 30), 6)
    coded = f"{HEADER}: 14\r\nContent-Encoding: gzip\r\n"
    yield post(PATH, raw, more=coded)


BODIES: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "tensor_bombs": ("Inference requests that become 1 GiB when they are decompressed", _bombs),
}


def attack(name: str) -> Callable[[Target], Steps]:
    """Return the attack with one kind of body."""
    about, build = BODIES[name]

    def run(target: Target) -> Steps:
        requests = [*build()]
        yield None
        yield from ask_all(target, requests, 80.0, 3.0)

    run.__name__ = name
    run.__doc__ = f"{about}."
    return run
