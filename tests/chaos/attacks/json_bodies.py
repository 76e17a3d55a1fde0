"""JSON bodies of many small things: unknown keys, empty lists, URLs, nested lists, twins.

Old effect: one anonymous request blocked the event loop for seconds to a minute, took a gigabyte,
and was answered with up to 250 MB. Promise: the body is refused while it is read, with a short
answer.
"""

from collections.abc import Callable

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask_all, post

_PIXEL = '{"data": "data:image/png;base64,iVBORw0KGgo="}'


def _options() -> bytes:
    return b'{"urls": ["http://a"], ' + b", ".join(b'"k%d": 1' % n for n in range(300_000)) + b"}"


def _deep(depth: int = 5_000_000) -> bytes:
    return b'{"images": ' + b"[" * depth + b"]" * depth + b"}"


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "json_unknown_keys": ("A JSON object of 300,000 unknown keys", _options),
    "json_image_keys": (
        "A JSON image of 300,000 unknown keys",
        lambda: b'{"images": [{' + b", ".join(b'"k%d": 1' % n for n in range(300_000)) + b"}]}",
    ),
    "json_empty_lists": (
        "A JSON list of 10 million empty lists",
        lambda: b"[" + b"[]," * 9_999_999 + b"[]]",
    ),
    "json_option_lists": (
        "An option that is a list of 10 million empty lists",
        lambda: b'{"urls": ["http://a"], "ops": [' + b"[]," * 9_999_999 + b"[]]}",
    ),
    "json_urls": (
        "Six million URLs",
        lambda: b'{"urls": [' + b'"a",' * 5_999_999 + b'"a"]}',
    ),
    "json_nested_images": (
        "24 MB of lists in the place of images",
        lambda: b'{"images": [' + b"[[],[]]," * 3_000_000 + b"[]]}",
    ),
    "json_empty_images": (
        "Ten million empty objects in the place of images",
        lambda: b'{"images": [' + b"{}," * 9_999_999 + b"{}]}",
    ),
    "json_duplicate_keys": (
        "The key `urls` two million times",
        lambda: b"{" + b'"urls": [],' * 2_000_000 + b'"urls": ["http://a"]}',
    ),
    "json_deep": ("Lists nested five million deep", _deep),
    "json_long_number": (
        "A number of 30 million digits",
        lambda: b'{"urls": ["http://a"], "top_k": ' + b"9" * 30_000_000 + b"}",
    ),
    "json_escapes": (
        "A string of 5 million escaped half surrogates",
        lambda: b'{"urls": ["' + b"\\ud800" * 5_000_000 + b'"]}',
    ),
    "json_long_url": (
        "A URL of 30 MB",
        lambda: b'{"urls": ["http://' + b"a" * 30_000_000 + b'"]}',
    ),
    "json_long_id": (
        "An id of 30 MB",
        lambda: b'{"images": [{"id": "' + b"a" * 30_000_000 + b'", "url": "http://a"}]}',
    ),
    "json_long_value": (
        "An option of 30 MB that no filter has",
        lambda: b'{"urls": ["http://a"], "name": "invert", "k": "' + b"a" * 30_000_000 + b'"}',
    ),
    "json_whitespace": (
        "250 MB of white space before a JSON body",
        lambda: b" " * 250_000_000 + b"{}",
    ),
    "json_many_ops": (
        "A chain of a million filters",
        lambda: (
            b'{"urls": ["http://a"], "ops": ['
            + b'{"name":"invert"},' * 999_999
            + b'{"name":"invert"}]}'
        ),
    ),
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
