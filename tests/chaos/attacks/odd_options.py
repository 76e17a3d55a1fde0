"""Options of filters and labels that are no numbers, absurd numbers, or nested without end.

Promise: each is answered at once with 400, 413, 415 or 422 and a short text, or with 200.
"""

import json
from collections.abc import Iterator
from urllib.parse import quote

from tests.chaos.harness.attack import Steps, Target
from tests.chaos.harness.http import ask, ask_all, post
from tests.chaos.hostile.others import flat
from tests.pictures import jpeg

_FORM = "multipart/form-data; boundary=b"
_URL = '"urls": ["http://127.0.0.1/"]'
_NUMBERS = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e-999", "1e308", "-0", "-0.0"),
    *("9" * 4301, "9" * 60_000, "-" + "9" * 5000, "0." + "0" * 60_000 + "1", "1e" + "9" * 5000),
    *(
        "null",
        "true",
        '""',
        '"\\u0000"',
        '"\\ud800"',
        "[]",
        "{}",
        "[[[[[[]]]]]]",
        '{"a": {"b": 1}}',
    ),
    *('"' + "a" * 100_000 + '"', '"1_0"', '"٣"', "18446744073709551616", "-9223372036854775809"),
)
_OPTIONS = (
    *("top_k", "quality", "png_level", "name", "format", "labels", "output", "model", "k"),
    *("\\u0000", "\\ud800", "__class__", "self", "sigma", "encoder", "subsampling", "metadata"),
)
_CHAINS = (
    "[" * 100_000,
    "[" * 30 + "]" * 30,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    json.dumps([{"name": "invert"}] * 10_000),
    json.dumps([{"name": "gaussian_blur", "sigma": 100}] * 32),
    json.dumps([{"name": "median", "size": 10**9}]),
    json.dumps([{"name": "convolve", "kernel": [[1.0] * 1001] * 1001}]),
    json.dumps([{"name": "convolve", "kernel": [[1.0] * 31] * 31}] * 32),
    json.dumps([{"name": "convolve", "kernel": [[1.0], [1.0, 2.0]]}]),
    json.dumps([{"name": "convolve", "kernel": [[[[1.0]]]]}]),
    json.dumps([{"name": "convolve", "kernel": []}, {"name": "convolve", "kernel": [[]]}]),
    json.dumps([{"name": "convolve", "kernel": [[1e308, 1e308], [1e308, 1e308]]}]),
    json.dumps([{"name": "convolve", "kernel": [["1"] * 3] * 3}]),
    '[{"name": "convolve", "kernel": [[NaN, Infinity, 1e999]]}]',
    '[{"name": "convolve", "kernel": [[' + "9" * 5000 + "]]}]",
    json.dumps([{"name": "resize", "width": 10**9, "height": 10**9}]),
    json.dumps([{"name": "resize", "width": 1, "height": 50_000_000}]),
    json.dumps([{"name": "pad", "left": 2**31, "right": 2**31, "top": 2**31, "bottom": 2**31}]),
    json.dumps([{"name": "crop", "left": -1, "top": -1, "width": 0, "height": 2**63}]),
    json.dumps([{"name": "pixelate", "size": 2**31}]),
    json.dumps([{"name": "noise", "seed": 2**64, "sigma": 1e300}]),
    json.dumps([{"name": "preset", "preset": "a" * 100_000}]),
    json.dumps([{"name": "a" * 1_000_000}]),
    json.dumps([{"name": "invert", f"k{n}": n} for n in range(30)]),
    json.dumps([{"name": "invert"} | {f"k{n}": n for n in range(9000)}]),
    json.dumps([{"ops": [{"name": "gausian_blurr"}] * 32}] * 64),
    json.dumps([{"ops": [{"name": "canny", "sigmaa": 1, "lowest": 2}] * 32}] * 64),
    json.dumps([None, 1, "invert", [], {"name": None}, {"name": ["invert"]}]),
    '[{"name": "invert", "name": "median"}]',
    '[{"name": "\\ud800"}]',
    '[{"\\ud800": 1}]',
    "\ufeff[]",
)


def _requests() -> Iterator[bytes]:
    """Yield each odd value of each option as JSON, as a query and as a field of a form."""
    photo = jpeg(1, 64, 48)
    pixel = "data:image/jpeg;base64,"
    for n, value in enumerate(_NUMBERS):
        for option in _OPTIONS:
            path = ("/classify", "/filter", "/process")[n % 3]
            body = f'{{{_URL}, "{option}": {value}}}'
            yield post(path, body.encode("utf-8", "surrogatepass"), "application/json")
        text = quote(value[:20_000].strip('"'))
        for option in ("top_k", "sigma", "size", "quality", "seed"):
            yield post(f"/filter?name=gaussian_blur&{option}={text}", photo, "image/jpeg")
        yield post(f"/classify?top_k={text}", photo, "image/jpeg")
        yield post("/filter", _form(photo, name="median", size=value.strip('"')), _FORM)
    for n, chain in enumerate(_CHAINS):
        if len(chain) < 20_000:
            yield post(f"/filter?ops={quote(chain)}", photo, "image/jpeg")
        yield post("/filter", _form(photo, ops=chain), _FORM)
        yield post("/process", _form(photo, versions=chain), _FORM)
        yield post("/process", _form(photo, versions=f'[{{"ops": {chain}}}]'), _FORM)
        inline = f'{{"images": [{{"data": "{pixel}"}}], "ops": {chain}}}'
        path = ("/filter", "/process")[n % 2]
        yield post(path, inline.encode("utf-8", "surrogatepass"), "application/json")


def _form(photo: bytes, **fields: str) -> bytes:
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode(
            "utf-8", "surrogatepass"
        )
        for name, value in fields.items()
    ]
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\n\r\n'
    return b"".join(parts) + head + photo + b"\r\n--b--\r\n"


def odd_options(target: Target) -> Steps:
    """Give every kind of option values like NaN, 1e999, huge numbers, kernels and deep chains."""
    requests = list(_requests())
    yield None
    for each in requests:
        yield ask(target, each, 40.0)


def enlarging_chains(target: Target) -> Steps:
    """Enlarge four tiny photos to 49 megapixels, 16 times in one chain."""
    large = {"name": "resize", "width": 7000, "height": 7000}
    small = {"name": "resize", "width": 64, "height": 48}
    chain = quote(json.dumps([large, small] * 16))
    request = post(f"/filter?ops={chain}", jpeg(1, 64, 48), "image/jpeg")
    yield None
    yield from ask_all(target, [request] * 4, 60.0)


def dear_neighbourhoods(target: Target) -> Steps:
    """Ask for the dearest morphology of four flat JPEGs of 4000 x 4000, twenty minutes of work."""
    options = "op=blackhat&shape=ellipse&size=201&iterations=16"
    request = post(f"/filter?name=morphology&{options}", flat("JPEG", 4000), "image/jpeg")
    yield None
    yield from ask_all(target, [request] * 4, 60.0)
