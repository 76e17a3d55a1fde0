"""How answers are encoded: options of `/filter`, of `/process` and of the command line."""

import base64
from typing import Any

import httpx

from tests.pictures import png

INVERT = {"ops": [{"name": "invert"}]}


def post(client: httpx.Client, query: str, body: bytes, accept: str = "*/*") -> httpx.Response:
    kind = {"Content-Type": "application/octet-stream", "Accept": accept}
    return client.post(f"/filter?name=invert&{query}", content=body, headers=kind)


def process(client: httpx.Client, **options: object) -> Any:
    images = [{"data": "data:image/png;base64," + base64.b64encode(png()).decode()}]
    return client.post("/process", json={"images": images, "labels": False, **options})


def files_of(reply: httpx.Response) -> list[bytes]:
    versions = reply.json()["results"][0]["versions"]
    return [base64.b64decode(each["image"]["data"]) for each in versions]


def test_versions_take_the_request_s_options_unless_they_have_a_format_of_their_own(
    client: httpx.Client,
) -> None:
    versions = [INVERT, INVERT | {"progressive": False}, INVERT | {"format": "webp"}]
    reply = process(
        client, versions=versions, format="jpeg", progressive=True, chroma=422, quality=50
    )
    assert reply.status_code == 200, reply.text
    first, second, third = files_of(reply)
    assert first == post(client, "format=jpeg&progressive=1&chroma=422&quality=50", png()).content
    assert second == post(client, "format=jpeg&chroma=422&quality=50", png()).content
    assert third == post(client, "format=webp&quality=50", png()).content


def test_a_version_whose_format_turns_out_wrong_fails_alone(client: httpx.Client) -> None:
    reply = process(client, versions=[INVERT, INVERT | {"progressive": True}])
    first, second = reply.json()["results"][0]["versions"]
    assert (first["status"], second["status"]) == ("ok", "error")
    assert second["error"]["errors"][0]["path"] == "progressive"
