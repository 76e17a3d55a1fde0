import asyncio
import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from app.pipeline import memory
from models import codec
from models.domain.job import Completed, Job, Labels
from tests.e2e.conftest import Running, Start
from tests.multipart_reply import content_of, parts_of
from tests.pictures import encoded, jpeg, png
from tests.server import until
from workers.operations import Classify

GREY: dict[str, Any] = {"ops": [{"name": "grayscale"}], "format": "png"}
BLURRED: dict[str, Any] = {"name": "gaussian_blur", "sigma": 3, "format": "webp", "quality": 70}
PLAIN: dict[str, Any] = {"ops": [{"name": "invert"}, {"name": "sepia"}]}


def data_uri(body: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(body).decode()


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


def files(*bodies: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    return [("files", (f"{n}.jpg", body)) for n, body in enumerate(bodies)]


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


def test_form_and_json_requests_take_the_same_versions(client: httpx.Client) -> None:
    versions = [GREY | {"id": "grey"}, BLURRED]
    form = client.post(
        "/process", files=files(png(1)), data={"versions": json.dumps(versions), "top_k": "1"}
    )
    images = [{"id": "a", "data": data_uri(png(1))}]
    body = {"images": images, "versions": versions, "top_k": 1}
    (by_form,), (by_json,) = (
        reply.json()["results"] for reply in (form, client.post("/process", json=body))
    )
    assert (by_form["source"], by_json["id"]) == ("0.jpg", "a")
    assert [v.get("id") for v in by_json["versions"]] == ["grey", None]
    assert by_form["predictions"] == by_json["predictions"]
    for one, other in zip(by_form["versions"], by_json["versions"], strict=True):
        assert one["image"] == other["image"]


def test_a_version_without_a_format_has_the_requests_then_accepts_then_the_sources(
    client: httpx.Client,
) -> None:
    def kinds(accept: str = "*/*", **options: object) -> list[str]:
        reply = process(client, jpeg(), accept, versions=[PLAIN, GREY], **options)
        return [v["image"]["media_type"] for v in reply.json()["results"][0]["versions"]]

    assert kinds() == ["image/jpeg", "image/png"]
    assert kinds(format="webp") == ["image/webp", "image/png"]
    assert kinds("application/json, image/webp") == ["image/webp", "image/png"]


def test_a_version_that_fails_fails_alone(client: httpx.Client) -> None:
    wide = encoded(Image.new("RGB", (17000, 2)), "PNG")
    invert = {"ops": [{"name": "invert"}]}
    versions = [invert, invert | {"id": "no", "format": "webp"}, invert | {"format": "png"}]
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


def test_an_image_none_of_whose_parts_succeeds_has_failed(client: httpx.Client) -> None:
    wide = encoded(Image.new("RGB", (17000, 2)), "PNG")
    versions = [{"name": "invert", "format": "webp"}] * 2
    reply = process(client, wide, versions=versions, labels="false")
    assert (reply.status_code, reply.json()["code"]) == (422, "unprocessable")


def test_labels_or_versions_may_be_left_out(client: httpx.Client) -> None:
    (only_labels,) = process(client, jpeg()).json()["results"]
    assert only_labels["predictions"]
    assert only_labels["versions"] == []
    only_versions = process(client, jpeg(), labels="false", versions=[GREY])
    assert "model" not in only_versions.json()
    assert "X-Model" not in only_versions.headers
    assert "predictions" not in only_versions.json()["results"][0]
    neither = process(client, jpeg(), labels="false")
    assert neither.status_code == 422
    assert neither.json()["errors"][0]["path"] == "versions"


@pytest.mark.parametrize(
    ("versions", "path"),
    [
        ([GREY, {"ops": [{"name": "gaussian_blur", "sigma": 0}]}], "versions[1].ops[0].sigma"),
        ([{"ops": [{"name": "invert"}, {"name": "nope"}]}], "versions[0].ops[1].name"),
        ([{"name": "median", "size": 4}], "versions[0].size"),
        ([{"ops": [{"name": "invert"}], "sigma": 2}], "versions[0].sigma"),
        ([GREY | {"quality": 0}], "versions[0].quality"),
        ([GREY | {"format": "gif"}], "versions[0].format"),
        ([GREY | {"id": 7}], "versions[0].id"),
        ([GREY | {"id": "x" * 257}], "versions[0].id"),
        ([{"id": "empty"}], "versions[0].ops"),
        ([GREY, "grayscale"], "versions[1]"),
        (GREY, "versions"),
        ([GREY] * 65, "versions"),
        ("[{", "versions"),
    ],
)
def test_a_wrong_version_is_422_with_its_path(
    client: httpx.Client, versions: object, path: str
) -> None:
    reply = process(client, jpeg(), versions=versions)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["path"] == path
    if path != "versions":
        assert reply.json()["detail"].startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("query", "path"), [("top_k=0", "top_k"), ("size=3", "size"), ("labels=maybe", "labels")]
)
def test_a_wrong_option_is_422_with_its_path(client: httpx.Client, query: str, path: str) -> None:
    reply = client.post(f"/process?{query}", content=jpeg(), headers={"Content-Type": "image/jpeg"})
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["path"] == path


def test_labels_and_versions_count_as_images_in_the_limit_of_a_request(
    client: httpx.Client,
) -> None:
    def status(n_images: int, n_versions: int) -> int:
        data = {"versions": json.dumps([GREY] * n_versions)}
        return client.post("/process", files=files(*[png()] * n_images), data=data).status_code

    assert status(4, 3) == 200
    assert status(4, 4) == 413
    assert status(1, 16) == 413


def test_several_images_as_a_zip_have_a_member_for_each_version(client: httpx.Client) -> None:
    reply = client.post(
        "/process",
        files=files(png(1), b"broken", png(2)),
        data={"versions": json.dumps([GREY, BLURRED])},
        headers={"Accept": "application/zip"},
    )
    archive = zipfile.ZipFile(io.BytesIO(reply.content))
    assert archive.testzip() is None
    records = [json.loads(line) for line in archive.read("results.jsonl").splitlines()]
    assert [r["status"] for r in records] == ["ok", "error", "ok"]
    assert [v["image"]["name"] for v in records[2]["versions"]] == ["2-0.png", "2-1.webp"]
    assert records[2]["predictions"]
    assert archive.read("2-1.webp") == filtered(client, png(2), BLURRED)
    assert len(archive.namelist()) == 5


def test_as_multipart_each_record_is_a_part_and_each_version_another(client: httpx.Client) -> None:
    reply = client.post(
        "/process",
        files=files(png(1), b"broken"),
        data={"versions": json.dumps([GREY, BLURRED])},
        headers={"Accept": "multipart/mixed"},
    )
    parts = {part["Content-ID"]: part for part in parts_of(reply)}
    assert parts.keys() == {"<0>", "<0.0>", "<0.1>", "<1>"}
    assert parts["<0.1>"].get_content_type() == "image/webp"
    assert content_of(parts["<0.1>"]) == filtered(client, png(1), BLURRED)
    record = json.loads(content_of(parts["<0>"]))
    assert record["predictions"]
    assert record["versions"][1]["image"]["name"] == parts["<0.1>"].get_filename()
    assert json.loads(content_of(parts["<1>"]))["status"] == "error"


class FiltersHang:
    """A backend that classifies and never filters."""

    def __init__(self, real: Any) -> None:
        self.real = real

    async def run(self, job: Job) -> Completed:
        if isinstance(job.operation, Classify):
            completed: Completed = await self.real.run(job)
            assert isinstance(completed.result, Labels)
            return completed
        await asyncio.Event().wait()
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_labels_come_although_a_version_misses_the_deadline(server: Running) -> None:
    pipeline = server.app.state.service.pipeline
    real = pipeline._backend
    pipeline._backend = FiltersHang(real)
    try:
        for milliseconds in ("1500", "15000", "90000"):  # a busy machine may have no labels by then
            reply = server.client.post(
                "/process",
                params={"versions": json.dumps([GREY])},
                content=jpeg(),
                headers={"Content-Type": "image/jpeg", "X-Deadline-Ms": milliseconds},
            )
            if reply.status_code != 504:
                break
    finally:
        pipeline._backend = real
    (record,) = reply.json()["results"]
    assert record["status"] == "partial"
    assert record["predictions"]
    assert record["versions"][0]["error"]["code"] == "deadline_exceeded"


def test_versions_come_although_there_are_no_weights(start: Start, tmp_path: Path) -> None:
    with start(weights="imagenet1k_v1", cache_folder=tmp_path) as running:
        reply = process(running.client, jpeg(), versions=[GREY])
        (record,) = reply.json()["results"]
        assert record["status"] == "partial"
        assert record["error"]["code"] == "weights_missing"
        assert record["versions"][0]["status"] == "ok"
        assert process(running.client, jpeg()).status_code == 503


def test_large_images_take_turns_in_memory_and_all_their_versions_come(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LEAST", 64 << 20)
    monkeypatch.setattr(memory, "PER_PROCESS", 0)
    with start() as running:
        body = jpeg(1, 2000, 1500)
        reply = process(running.client, body, versions=[PLAIN] * 3)
        (record,) = reply.json()["results"]
        assert [v["status"] for v in record["versions"]] == ["ok"] * 3
        admission = running.app.state.service.admission
        until(lambda: admission.held.images == 0)  # a client can have all before the server is done
