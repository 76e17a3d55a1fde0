"""Hostile requests of the Open Inference Protocol: numbers without end, lies about sizes, bombs.

A parser would make 32 bytes of each number of two characters, on the event loop. Promise: what is
wrong is refused with a short answer, neighbours wait for nothing, and memory stays bounded.
"""

import gzip
import json
from collections.abc import Callable, Iterator

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

Given = dict[str, object]

PATH = "/v2/models/resnet18/infer"
JSON = "application/json"
HEADER = "Inference-Header-Content-Length"

INPUT: Given = {"name": "INPUT", "datatype": "FP32", "shape": [64, 3, 224, 224]}
PIXELS: Given = {"name": "PIXELS", "datatype": "UINT8", "shape": [1, 100, 100, 3]}
IMAGE: Given = {"name": "IMAGE", "datatype": "BYTES", "shape": [2]}
HUGE = 1 << 62


def _with_data(given: Given, data: bytes) -> bytes:
    """Return the JSON of a request whose array is `data`."""
    return json.dumps({"inputs": [given | {"data": "?"}]}).encode().replace(b'"?"', data)


def _behind(given: Given, size: int, raw: bytes, more: str = "") -> bytes:
    """Return a request with a tensor of `size` bytes, as it says, behind its JSON."""
    parameters = {"binary_data_size": size}
    head = json.dumps({"inputs": [given | {"parameters": parameters}]}).encode()
    return post(PATH, head + raw, more=f"{HEADER}: {len(head)}\r\n{more}")


def _numbers() -> Iterator[bytes]:
    yield post(PATH, _with_data(INPUT, b"[" + b"1," * 9_633_791 + b"1]"), JSON)
    yield post(PATH, _with_data(PIXELS, b"[" + b"1," * 30_000_000 + b"1]"), JSON)
    yield post(PATH, _with_data(INPUT, b"[" + b"1e99," * 9_633_791 + b"1]"), JSON)


def _brackets() -> Iterator[bytes]:
    yield post(PATH, _with_data(PIXELS, b"[" * 30_000_000), JSON)
    yield post(PATH, _with_data(PIXELS, b"[" + b"[]," * 9_999_999 + b"[]]"), JSON)
    yield post(PATH, _with_data(INPUT, b"[" + b"[[1],[1]]," * 3_000_000 + b"[]]"), JSON)
    yield post(PATH, _with_data(IMAGE, b'["",' * 5_000_000 + b"]"), JSON)


def _lies() -> Iterator[bytes]:
    for size in (HUGE, 0, 7, 1 << 31):
        yield _behind(IMAGE, size, b"\xff\xff\xff\xff" + b"\0" * 100_000)
    yield _behind(PIXELS | {"shape": [1, HUGE, HUGE, 3]}, HUGE, b"\0" * 100_000)
    yield _behind(INPUT | {"shape": [HUGE, 3, 224, 224]}, HUGE, b"\0" * 100_000)
    yield post(PATH, b"{}" * 100_000, more=f"{HEADER}: {HUGE}\r\n")


def _bombs() -> Iterator[bytes]:
    packed = gzip.compress(b" " * (1 << 30), 6)
    yield post(PATH, packed, JSON, "Content-Encoding: gzip\r\n")
    raw = gzip.compress(b'{"inputs": []}' + b"\0" * (1 << 30), 6)
    coded = f"{HEADER}: 14\r\nContent-Encoding: gzip\r\n"
    yield post(PATH, raw, more=coded)


BODIES: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "tensor_numbers": ("Tensors of 10 and 30 million numbers in JSON", _numbers),
    "tensor_brackets": ("Tensors of 10 and 30 million brackets in JSON", _brackets),
    "tensor_lies": ("Tensors whose sizes and shapes are not true", _lies),
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
