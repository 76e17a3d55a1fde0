"""Odd files of every format, each asked for by itself, for labels and filtered.

Promise: each is answered, below 500, and none takes a decoder as long as a large photo would.
"""

import json
import time

from tests.chaos.harness.attack import Finding, Steps, Target
from tests.chaos.harness.http import ask, post
from tests.chaos.hostile.odd_images import FILES

_PATHS = ("/classify", "/filter?name=invert", "/filter?name=flip&format=avif&metadata=keep")


def odd_images(target: Target) -> Steps:
    """Send a hundred odd files of all formats, each to three routes."""
    files = {name: build() for name, build in FILES.items()}
    yield None
    slowest, at = 0.0, 0
    for number, data in enumerate(files.values()):
        for path in _PATHS:
            started = time.monotonic()
            yield ask(target, post(path, data), 40.0)
            seconds = time.monotonic() - started
            if seconds > slowest:
                slowest, at = seconds, number
    yield Finding("slowest_s", slowest, most=30.0)
    yield Finding("slowest_is_number", at)


def _bodies() -> list[bytes]:
    data = '"data": "data:image/png;base64,iVBORw0KGgo="'
    deep = "[" * 31 + "]" * 31
    texts = (
        f'{{"images": [{{{data}, {data}}}]}}',
        f'{{"images": [{{{data}}}], "images": []}}',
        f'{{"images": [{{{data}}}], "imag\\u0065s": []}}',
        f'{{"images": {deep}}}',
        f'{{"images": [{{{data}, "id": "\\ud800"}}]}}',
        f'{{"images": [{{{data}, "id": "\\u0000\\u202e\\ufeff\\uffff"}}]}}',
        f'{{"images": [{{{data}}}], "top_k": 1e308}}',
        f'{{"images": [{{{data}}}], "top_k": 1E-400}}',
        f'{{"images": [{{{data}}}], "top_k": -0}}',
        f'{{"images": [{{{data}}}], "top_k": NaN}}',
        f'{{"images": [{{{data}}}], "top_k": {"1" * 4400}}}',
        f'{{"images": [{{{data}}}], "{"k" * 100_000}": 1}}',
        f'\ufeff{{"images": [{{{data}}}]}}',
        f'{{"images": [{{{data}}}]}} {{}}',
        f'{{"images": [{{{data}}}],}}',
        f'{{"images": [{{{data}}}] /* a */}}',
        '{"images": [{"data": "' + "\\u0041" * 500_000 + '"}]}',
        '{"images": [{"data": "data:' + ";a=b" * 500_000 + ',"}]}',
        '{"images": [{"data": "data:image/png;base64,' + "%41" * 500_000 + '"}]}',
        '{"images": [{"data": "data:image/png;base64,' + " \\n" * 500_000 + '"}]}',
        '{"images": [{"data": "data:image/png;base64,' + "=" * 5_000_000 + '"}]}',
        '{"images": [{"data": "data:image/png;base64,' + "\u20ac" * 2_000_000 + '"}]}',
        '{"images": [' + f"{{{data}}}," * 100_000 + f"{{{data}}}]}}",
        '{"urls": [' + '"http://\\ud83d\\ude00.example/",' * 60 + '"a"]}',
        "0", '"a"', "[]", "{}", "null", "", " ", '{"images": null}', '{"": ""}',
        json.dumps({"images": [{"data": "data:,"}] * 64, "ops": "[" * 4000}),
    )  # fmt: skip
    odd = (b"\xff\xfe{\0}\0", b"{\xc0\x80}", b'{"images": "\xed\xa0\x80"}', b"\0" * 1_000_000)
    return [*(each.encode("utf-8", "surrogatepass") for each in texts), *odd]
