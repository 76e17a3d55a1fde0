"""Record what a real server of this checkout answers, to prove that a change is harmless.

`python -m tests.golden.record FILE` writes JSON; `diff -F '^ "' FILE OTHER` shows where two records
differ, each place with its request. Times, dates and ids of requests are left out. Micro-batches
hold one image, so that labels do not depend on how requests happen to meet. Commands, ZIPs and
multipart answers have tests of their own.
"""

import argparse
import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.pictures import drawing, encoded, exif
from tests.server import serving

SETTINGS = {
    "DARKROOM_WEIGHTS": "bundled",
    "DARKROOM_MAX_BATCH_SIZE": "1",
    "DARKROOM_LOG_LEVEL": "error",
    "DARKROOM_GPUS": "0",
    "DARKROOM_THREADS": "1",
    "DARKROOM_PRECISION": "fp32",
}

SIZES = ((64, 48), (97, 61), (320, 240), (31, 200), (224, 224), (1, 1), (255, 17), (120, 160))
"""Width and height; primes, a single pixel and tall images among them."""

KINDS: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    ("JPEG", "RGB", {"quality": 90}),
    ("PNG", "RGB", {}),
    ("JPEG", "L", {"quality": 75}),
    ("PNG", "RGBA", {}),
    ("WEBP", "RGB", {"quality": 80}),
    ("JPEG", "RGB", {"progressive": True, "exif": exif(x274=6)}),
    ("PNG", "L", {"exif": exif(x274=3)}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("TIFF", "RGB", {}),
    ("JPEG", "CMYK", {"quality": 90}),
    ("PNG", "LA", {}),
    ("WEBP", "RGBA", {"lossless": True}),
    ("JPEG", "RGB", {"quality": 95, "subsampling": 0}),
    ("PNG", "I;16", {}),
)
"""Pillow's format, the mode and the options of each kind of file."""

ENCODINGS = (
    *(
        "format=jpeg&quality=70",
        "format=jpeg&progressive=true&chroma=444",
        "format=png&png_level=6",
    ),
    *("format=webp&quality=60", "format=webp&lossless=true", "format=avif&avif_speed=10"),
    "metadata=keep",
)

VERSIONS = [
    {"id": "grey", "ops": [{"name": "grayscale"}], "format": "png"},
    {"name": "gaussian_blur", "sigma": 2, "format": "webp", "quality": 70},
    {"ops": [{"name": "invert"}, {"name": "sepia"}]},
]

OPTIONS: dict[str, dict[str, Any]] = {
    "/classify": {"top_k": 1},
    "/filter": {"ops": [{"name": "sobel"}], "format": "png"},
    "/process": {"versions": VERSIONS, "top_k": 2},
}

FORMS = ("application/json", "application/x-ndjson", "text/event-stream", "image/webp", "text/html")
"""Media types that requests for several images, and for one, accept."""

REFUSED = (
    *("POST /filter?name=nothing", "POST /filter?name=gaussian_blur&sigma=-1", "POST /filter"),
    *("POST /filter?name=invert&quality=300", "POST /filter?ops=[1", "POST /process?versions=7"),
    "POST /filter?name=crop&left=0&top=0&width=9000&height=9000",
    *("POST /classify?top_k=0", "POST /classify?colour=red", "POST /classify?timeout=-1"),
    *("GET /nowhere", "DELETE /classify", "GET /filters/nothing"),
)

HEADERS = (
    *("allow", "cache-control", "content-disposition", "content-security-policy", "location"),
    *("content-type", "vary", "www-authenticate", "x-content-type-options", "x-filter-spec"),
    "x-model",
)
"""The headers whose values do not change; of Server-Timing only the names are kept."""

CHANGING = {"timing", "request_id", "seconds_ago", "images_per_second", "instance_id"}
"""Keys of JSON whose values differ from run to run."""

File = tuple[str, bytes, str]
"""The name, the bytes and the media type of a file."""

Answers = Iterator[tuple[str, httpx.Response]]


def drawn() -> list[File]:
    """Draw four files of each kind, always with the same bytes."""
    found = []
    for number in range(4 * len(KINDS)):
        format_, mode, options = KINDS[number % len(KINDS)]
        image = drawing(*SIZES[number * 3 % len(SIZES)], number)
        if mode.endswith("A"):
            image.putalpha(image.getchannel("G"))
        data = encoded(
            image.convert("L" if mode == "I;16" else mode).convert(mode), format_, **options
        )
        found.append((f"{number:02}.{format_.lower()}", data, f"image/{format_.lower()}"))
    return found


def pages(client: httpx.Client, files: Sequence[File]) -> Answers:
    """Ask for everything that needs no image, and for what is refused."""
    names = [each["name"] for each in client.get("/filters").json()["filters"]]
    shown = [f"/filters/{name}{end}" for name in names for end in ("", "/thumbnail")]
    health = ("/livez", "/readyz", "/startupz", "/health", "/healthz")
    for path in ("/", "/docs", "/openapi.json", "/filters", "/models", *health, *shown):
        yield f"GET {path}", client.get(path)
    for path in health:
        yield f"HEAD {path}", client.head(path)
    headers = {"Content-Type": "image/png", "Accept": "*/*"}
    for each in REFUSED:
        yield each, client.request(*each.split(), content=files[1][1], headers=headers)


def alone(client: httpx.Client, files: Sequence[File]) -> Answers:
    """Send one image in a request: for labels, to each filter, and for each kind of encoding."""
    filters = client.get("/filters").json()["filters"]
    asked = [(file, f"/classify?top_k={n % 3 + 1}") for n, file in enumerate(files)]
    for n, each in enumerate(filters):
        ops = json.dumps([{**each["example"], "name": each["name"]}])
        asked += [(files[(n + step) % len(files)], f"/filter?ops={ops}") for step in (0, 21, 43)]
    for query in ENCODINGS:
        asked += [(file, f"/filter?name=invert&{query}") for file in (*files[:5], *files[10:13])]
    for (name, data, kind), path in asked:
        headers = {"Content-Type": kind, "Accept": "*/*"}
        yield f"{path} {name}", client.post(path, content=data, headers=headers)


def together(client: httpx.Client, files: Sequence[File]) -> Answers:
    """Send several images and broken ones, as a form in each form of an answer, and as JSON."""
    several = [
        *files[:5],
        ("broken.jpg", b"no image", "image/jpeg"),
        ("cut", files[0][1][:300], ""),
    ]
    listed: list[dict[str, str]] = [
        {"id": name, "data": f"data:{kind};base64,{base64.b64encode(data).decode()}"}
        for name, data, kind in files[5:9]
    ]
    listed += [{"url": "http://127.0.0.1:1/x.png"}, {"url": "ftp://x"}, {"data": "data:,x"}]
    bodies: tuple[dict[str, Any], ...]
    bodies = {"images": listed}, {"urls": ["http://169.254.169.254/"]}, {"images": []}, {}
    for path, options in OPTIONS.items():
        fields = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
        for accept in FORMS:
            for sent in (several, several[:1], several[-1:]):
                form = [("files", each) for each in sent]
                reply = client.post(path, data=fields, files=form, headers={"Accept": accept})
                yield f"{path} {accept} {len(sent)} {sent[0][0]}", reply
        for body in bodies:
            reply = client.post(path, json=body | options, headers={"Accept": FORMS[0]})
            yield f"{path} as JSON, {str(body)[:20]}", reply


def plain(response: httpx.Response) -> dict[str, Any]:
    """Return status, lasting headers and body of an answer."""
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    timing = response.headers.get("server-timing", "")
    headers["server-timing"] = re.sub(r";(dur|desc)=[^,]*", "", timing)
    kind = headers.get("content-type", "")
    return {
        "status": response.status_code,
        "headers": headers,
        "body": _lines(response.text)
        if "json" in kind or "event" in kind
        else _digest(response.content),
    }


def _lines(text: str) -> list[Any]:
    """Return the lines of a text, each as JSON if it is; records of streams come in any order."""
    found = []
    for line in text.splitlines():
        try:
            found.append(_lasting(json.loads(line.removeprefix("data: "))))
        except ValueError:
            found.append(line)
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))


def _lasting(value: Any) -> Any:
    """Return JSON without the values that differ from run to run, and long texts as digests."""
    if isinstance(value, Mapping):
        return {k: _lasting(v) for k, v in value.items() if k not in CHANGING}
    if isinstance(value, list):
        return [_lasting(each) for each in value]
    return _digest(value.encode()) if isinstance(value, str) and len(value) > 2000 else value


def _digest(data: bytes) -> str:
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def main() -> None:
    """Write the record to the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file, images = parser.parse_args().file, drawn()
    with (
        serving(environment=SETTINGS) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=120) as client,
    ):
        parts = (pages(client, images), alone(client, images), together(client, images))
        found = {name: plain(reply) for part in parts for name, reply in part}
    file.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    print(f"{len(found)} answers")


if __name__ == "__main__":
    main()
