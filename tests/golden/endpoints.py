"""Every request whose answer is recorded: endpoints, filters, output formats, streams, refusals."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.golden import plain
from tests.golden.drawn import Drawn

STREAMS = (
    "application/json",
    "application/x-ndjson",
    "application/jsonl",
    "text/event-stream",
    "application/zip",
    "multipart/mixed",
    "image/webp",
)

ENCODINGS = (
    "format=jpeg&quality=70",
    "format=jpeg&progressive=true&chroma=444",
    "format=png&png_level=6",
    "format=webp&quality=60",
    "format=webp&lossless=true",
    "format=avif&quality=50&avif_speed=10",
    "metadata=keep",
)

REFUSED = (
    ("POST", "/filter?name=nothing"),
    ("POST", "/filter?name=gaussian_blur&sigma=-1"),
    ("POST", "/filter?name=invert&quality=300"),
    ("POST", "/filter?ops=[1"),
    ("POST", "/filter"),
    ("POST", "/filter?name=crop&left=0&top=0&width=9000&height=9000"),
    ("POST", "/classify?top_k=0"),
    ("POST", "/classify?colour=red"),
    ("POST", "/classify?timeout=-1"),
    ("POST", "/process?versions=7"),
    ("GET", "/nowhere"),
    ("DELETE", "/classify"),
    ("GET", "/filters/nothing"),
)

VERSIONS = json.dumps(
    [
        {"id": "grey", "ops": [{"name": "grayscale"}], "format": "png"},
        {"name": "gaussian_blur", "sigma": 2, "format": "webp", "quality": 70},
        {"ops": [{"name": "invert"}, {"name": "sepia"}]},
    ]
)

Answer = tuple[str, dict[str, Any]]


def pages(client: httpx.Client) -> Iterator[Answer]:
    """Ask for everything that needs no image."""
    for path in ("/", "/docs", "/openapi.json", "/filters", "/models"):
        yield f"GET {path}", plain.reply(client.get(path))
    for path in ("/livez", "/readyz", "/startupz", "/health", "/healthz"):
        yield f"GET {path}", plain.reply(client.get(path))
        yield f"HEAD {path}", plain.reply(client.head(path))
    verbose = client.get("/readyz?verbose").json()
    yield "GET /readyz?verbose, its keys", {"body": sorted(verbose)}
    names = {
        line.split()[2] for line in client.get("/metrics").text.splitlines() if "# TYPE" in line
    }
    yield "GET /metrics, its names", {"body": sorted(n for n in names if n.startswith("darkroom"))}
    for name in (each["name"] for each in client.get("/filters").json()["filters"]):
        yield f"GET /filters/{name}", plain.reply(client.get(f"/filters/{name}"))
        picture = f"/filters/{name}/thumbnail"
        yield f"GET {picture}", plain.reply(client.get(picture))


def labels(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Classify every image alone."""
    for number, each in enumerate(images):
        query = ("top_k=3", "top_k=1&function_to_apply=none", "")[number % 3]
        yield f"classify {each.name} {query}", _raw(client, f"/classify?{query}", each)


def filters(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Put three images through each filter, with the parameters of the filter's example."""
    for number, each in enumerate(client.get("/filters").json()["filters"]):
        ops = json.dumps([{**each["example"], "name": each["name"]}])
        for step in (0, 21, 43):
            image = images[(number + step) % len(images)]
            reply = _raw(client, "/filter", image, ops=ops)
            yield f"filter {each['name']} {image.name}", reply


def encodings(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Encode in each format, with its options, from sources of several formats."""
    for query in ENCODINGS:
        for image in (*images[:5], *images[10:13]):
            yield (
                f"encode {query} {image.name}",
                _raw(client, f"/filter?name=invert&{query}", image),
            )


def streams(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Send several images, and one, to each endpoint in each form of an answer."""
    several = [("files", (i.name, i.data, i.media_type)) for i in images[:5]]
    several.append(("files", ("broken.jpg", b"no image", "image/jpeg")))
    options = {"/classify": {"top_k": "1"}, "/filter": {"name": "sobel"}, "/process": {}}
    options["/process"] = {"versions": VERSIONS, "top_k": "2"}
    for path, given in options.items():
        for accept in (*STREAMS, "*/*", "text/html"):
            for files in (several, several[:1], several[-1:]):
                reply = client.post(path, data=given, files=files, headers={"Accept": accept})
                yield f"{path} {accept} {len(files)} {files[0][1][0]}", plain.reply(reply)


def bodies(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Send images as JSON, some of them wrong."""
    listed: list[dict[str, str]] = [
        {"id": each.name, "data": f"data:{each.media_type};base64,{_base64(each.data)}"}
        for each in images[5:9]
    ]
    listed += [{"url": "http://127.0.0.1:1/x.png"}, {"url": "ftp://x"}, {"data": "data:,x"}]
    for path, options in (
        ("/classify", {"top_k": 1}),
        ("/filter", {"ops": [{"name": "equalize"}], "format": "png"}),
        ("/process", {"versions": json.loads(VERSIONS), "labels": False}),
    ):
        bodies: tuple[dict[str, Any], ...]
        bodies = {"images": listed}, {"urls": ["http://169.254.169.254/"]}, {"images": []}, {}
        for body in bodies:
            reply = client.post(path, json=body | options)
            yield (
                f"{path} as JSON, {len(body.get('images', []))} {sorted(body)}",
                plain.reply(reply),
            )


def refusals(client: httpx.Client, images: list[Drawn]) -> Iterator[Answer]:
    """Ask for what is refused."""
    for method, path in REFUSED:
        headers = {"Content-Type": "image/png", "Accept": "*/*"}
        reply = client.request(method, path, content=images[1].data, headers=headers)
        yield f"{method} {path}", plain.reply(reply)
    for name, content in (("empty", b""), ("text", b"hello"), ("cut", images[0].data[:300])):
        reply = client.post(
            "/filter?name=invert", content=content, headers={"Content-Type": "image/jpeg"}
        )
        yield f"filter {name}", plain.reply(reply)


def _raw(client: httpx.Client, path: str, image: Drawn, **query: str) -> dict[str, Any]:
    headers = {"Content-Type": image.media_type, "Accept": "*/*"}
    reply = client.post(path, params=query or None, content=image.data, headers=headers)
    return plain.reply(reply)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
