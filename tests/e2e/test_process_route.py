import base64
import io
import json
from typing import Any

import httpx
import pytest
from PIL import Image

from models import codec
from tests.e2e.conftest import Running
from tests.e2e.test_door import stuck_backend
from tests.pictures import encoded, jpeg, png
from workers.operations import Classify

GREY: dict[str, Any] = {"ops": [{"name": "grayscale"}], "format": "png"}
BLURRED: dict[str, Any] = {"name": "gaussian_blur", "sigma": 3, "format": "webp", "quality": 70}
INVERT: dict[str, Any] = {"ops": [{"name": "invert"}]}
PLAIN: dict[str, Any] = {"ops": [{"name": "invert"}, {"name": "sepia"}]}


def process(client: httpx.Client, body: bytes, accept: str = "*/*", **options: object) -> Any:
    """Send one image with its options in the query, as JSON where they are lists."""
    query = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    kind = {"Content-Type": "image/jpeg", "Accept": accept}
    return client.post("/process", params=query, content=body, headers=kind)


def filtered(client: httpx.Client, body: bytes, version: dict[str, Any]) -> bytes:
    query = {k: json.dumps(v) if k == "ops" else v for k, v in version.items()}
    kind = {"Content-Type": "image/jpeg", "Accept": "*/*"}
    reply = client.post("/filter", params=query, content=body, headers=kind)
    assert reply.status_code == 200, reply.text
    return reply.content


def test_labels_are_those_of_classify_and_versions_the_bytes_of_filter(
    client: httpx.Client,
) -> None:
    reply = process(client, jpeg(), versions=[GREY, BLURRED, PLAIN], top_k=3)
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert body["summary"] == {"total": 1, "succeeded": 1, "failed": 0}
    (record,) = body["results"]
    assert record["status"] == "ok"
    kind = {"Content-Type": "image/jpeg"}
    alone = client.post("/classify?top_k=3", content=jpeg(), headers=kind).json()
    assert body["model"] == alone["model"]
    assert record["predictions"] == alone["results"][0]["predictions"]
    assert [v["index"] for v in record["versions"]] == [0, 1, 2]
    for version, wanted in zip(record["versions"], (GREY, BLURRED, PLAIN), strict=True):
        data = base64.b64decode(version["image"]["data"])
        assert data == filtered(client, jpeg(), wanted)
        assert version["image"]["bytes"] == len(data)
        assert version["image"]["media_type"] == Image.open(io.BytesIO(data)).get_format_mimetype()
        assert {"queue", "compute", "encode"} <= version["timing"].keys()
    assert reply.headers["X-Filter-Spec"] == "1"
    assert "random" in reply.headers["X-Model"]
    assert "encode;dur=" in reply.headers["Server-Timing"]


def test_each_image_is_decoded_once_however_many_versions_there_are(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, open_plain = [], codec.open_plain

    def counted(data: bytes, *, max_pixels: int) -> codec.Opened | None:
        decoded.append(data)
        return open_plain(data, max_pixels=max_pixels)

    monkeypatch.setattr(codec, "open_plain", counted)
    assert process(client, jpeg(7), versions=[GREY, BLURRED, PLAIN]).status_code == 200
    assert decoded == [jpeg(7)]


def test_a_version_that_fails_fails_alone(client: httpx.Client) -> None:
    wide = encoded(Image.new("RGB", (17000, 2)), "PNG")
    versions = [INVERT, INVERT | {"id": "no", "format": "webp"}, INVERT | {"format": "png"}]
    reply = process(client, wide, versions=versions)
    assert reply.status_code == 200
    assert reply.json()["summary"] == {"total": 1, "succeeded": 0, "failed": 1}
    (record,) = reply.json()["results"]
    assert record["status"] == "partial"
    assert len(record["predictions"]) == 5
    assert "error" not in record
    assert [v["status"] for v in record["versions"]] == ["ok", "error", "ok"]
    failed = record["versions"][1]
    assert failed["id"] == "no"
    assert (failed["error"]["code"], failed["error"]["item_index"]) == ("unprocessable", 0)
    assert "16,383" in failed["error"]["detail"]


def test_labels_or_versions_may_be_left_out(client: httpx.Client) -> None:
    (only_labels,) = process(client, jpeg()).json()["results"]
    assert only_labels["predictions"]
    assert only_labels["versions"] == []
    only_versions = process(client, jpeg(), labels="false", versions=[GREY])
    assert "model" not in only_versions.json()
    assert "X-Model" not in only_versions.headers
    assert "predictions" not in only_versions.json()["results"][0]


def test_labels_come_although_a_version_misses_the_deadline(server: Running) -> None:
    with stuck_backend(server, Classify):
        for milliseconds in ("1500", "15000", "90000"):  # a busy machine may have no labels by then
            reply = server.client.post(
                "/process",
                params={"versions": json.dumps([GREY])},
                content=jpeg(),
                headers={"Content-Type": "image/jpeg", "X-Deadline-Ms": milliseconds},
            )
            if reply.status_code != 504:
                break
    (record,) = reply.json()["results"]
    assert record["status"] == "partial"
    assert record["predictions"]
    assert record["versions"][0]["error"]["code"] == "deadline_exceeded"


def versioned(client: httpx.Client, **options: object) -> Any:
    images = [{"data": "data:image/png;base64," + base64.b64encode(png()).decode()}]
    return client.post("/process", json={"images": images, "labels": False, **options})


def files_of(reply: httpx.Response) -> list[bytes]:
    versions = reply.json()["results"][0]["versions"]
    return [base64.b64decode(each["image"]["data"]) for each in versions]


def test_versions_take_the_request_s_options_unless_they_have_a_format_of_their_own(
    client: httpx.Client,
) -> None:
    versions = [INVERT, INVERT | {"progressive": False}, INVERT | {"format": "webp"}]
    shared: dict[str, Any] = {"format": "jpeg", "chroma": "422", "quality": 50}
    reply = versioned(client, versions=versions, progressive=True, **shared)
    assert reply.status_code == 200, reply.text
    jpeg_, webp = INVERT | shared, INVERT | {"format": "webp", "quality": 50}
    expected = [jpeg_ | {"progressive": True}, jpeg_, webp]
    assert files_of(reply) == [filtered(client, png(), each) for each in expected]


def test_a_version_whose_format_turns_out_wrong_fails_alone(client: httpx.Client) -> None:
    reply = versioned(client, versions=[INVERT, INVERT | {"progressive": True}])
    first, second = reply.json()["results"][0]["versions"]
    assert (first["status"], second["status"]) == ("ok", "error")
    assert second["error"]["errors"][0]["path"] == "progressive"
