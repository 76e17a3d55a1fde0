"""Jobs from the manifest to the results, by a real server."""

import base64
import gzip
import io
import json
import random
import tarfile
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos import jobs_killed
from tests.e2e.conftest import Start
from tests.pictures import jpeg, png
from tests.server import COLD, FILTERS, serving, until

LINES = {"Content-Type": "application/x-ndjson"}
FINISHED = ("succeeded", "failed", "cancelled", "expired")
PHOTO = f"data:image/jpeg;base64,{base64.b64encode(jpeg()).decode()}"
DRAWING = f"data:image/png;base64,{base64.b64encode(png()).decode()}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def client(start: Start, folder: Path) -> Iterator[httpx.Client]:
    with start(decoders=2, data_folder=folder, max_jobs_per_client=2, max_job_items=500) as running:
        yield running.client


def manifest(*items: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in items)


def made(client: httpx.Client, query: str, body: bytes, **headers: str) -> str:
    """Return the path of a new job."""
    answer = client.post(f"/jobs?operation={query}", content=body, headers=LINES | headers)
    assert answer.status_code == 202, answer.text
    assert answer.headers["Retry-After"] == "2"
    path: str = answer.headers["Location"]
    return path


def finished(client: httpx.Client, path: str) -> Any:
    """Return a job that has finished."""
    until(lambda: client.get(path).json()["state"] in FINISHED)
    return client.get(path).json()


def records(client: httpx.Client, path: str, query: str = "") -> list[Any]:
    answer = client.get(f"{path}/results{query}")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    # Results that are followed have empty lines where no record came for a while.
    return [json.loads(line) for line in answer.text.splitlines() if line]


def test_a_job_answers_each_item_once_with_the_record_of_replies(client: httpx.Client) -> None:
    items = [{"id": f"n{n}", "data": DRAWING if n % 7 else "data:,"} for n in range(35)]
    path = made(client, "classify&top_k=2", manifest(*items))
    followed = records(client, path, "?follow=true")
    job = finished(client, path)
    assert job["state"] == "succeeded"
    assert job["items"] == {"total": 35, "done": 35, "succeeded": 30, "failed": 5}
    assert job["options"] == {"top_k": "2"}
    assert job["created"] <= job["started"] <= job["finished"] < job["expires"]
    found = records(client, path)
    assert found == followed
    assert sorted(each["index"] for each in found) == [*range(35)]
    assert all(each["id"] == f"n{each['index']}" for each in found)
    assert all((each["status"] == "ok") == bool(each["index"] % 7) for each in found)
    good = next(each for each in found if each["status"] == "ok")
    body = {"images": [{"data": DRAWING}], "top_k": 2}
    replied = client.post("/classify", json=body).json()
    assert client.get(path).json()["model"] == replied["model"]
    reply = replied["results"][0]
    assert [each["label"] for each in good["predictions"]] == [
        each["label"] for each in reply["predictions"]
    ]
    assert {*good} == {*reply, "id"}


def test_a_packed_json_list_is_a_manifest_too_and_process_is_an_operation(
    client: httpx.Client,
) -> None:
    versions = '[{"name": "sobel", "format": "png"}]'
    query = {"operation": "process", "top_k": "1", "versions": versions}
    packed = gzip.compress(json.dumps([{"id": "a", "data": PHOTO}]).encode())
    kind = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = client.post("/jobs", params=query, content=packed, headers=kind)
    path = answer.headers["Location"]
    assert finished(client, path)["items"]["succeeded"] == 1
    (found,) = records(client, path)
    assert found["versions"][0]["image"]["media_type"] == "image/png"
    assert len(found["predictions"]) == 1


def packed(**files: bytes) -> dict[str, bytes]:
    """Return a ZIP, a TAR and a compressed TAR of the same files, by media type."""
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"in/{name}", content)
    with tarfile.open(fileobj=tarred, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"in/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {
        "application/zip": zipped.getvalue(),
        "application/x-tar": tarred.getvalue(),
        "application/gzip": gzip.compress(tarred.getvalue()),
    }


def test_every_file_of_an_archive_is_an_item(client: httpx.Client) -> None:
    for kind in ["application/zip", "application/x-tar", "application/gzip"]:
        files = {f"n{n}": (png() if n % 10 else b"no image") for n in range(20)}
        path = made(client, "filter&name=invert", packed(**files)[kind], **{"Content-Type": kind})
        items = finished(client, path)["items"]
        assert items == {"total": 20, "done": 20, "succeeded": 18, "failed": 2}
        found = sorted(records(client, path), key=lambda each: int(each["index"]))
        assert [each["source"] for each in found] == [f"in/{name}" for name in files]
        assert [each["status"] == "ok" for each in found] == [bool(n % 10) for n in range(20)]


def test_a_manifest_names_members_of_the_archive_beside_it(client: httpx.Client) -> None:
    archive = packed(a=png(), b=b"no image", c=png())["application/zip"]
    items = [{"id": "one", "path": "in/c"}, {"id": "two", "path": "in/b"}, {"data": DRAWING}]
    for parts in (("archive", "manifest"), ("manifest", "archive")):
        given = {"archive": archive, "manifest": manifest(*items)}
        files = [(name, (name, given[name])) for name in parts]
        path = client.post("/jobs?operation=classify", files=files).headers["Location"]
        assert finished(client, path)["items"]["succeeded"] == 2
        found = sorted(records(client, path), key=lambda each: int(each["index"]))
        assert [each.get("id") for each in found] == ["one", "two", None]
        assert [each["status"] for each in found] == ["ok", "error", "ok"]


def test_the_same_key_and_body_are_the_same_job(client: httpx.Client) -> None:
    body = manifest({"data": "data:,"})
    key = {"Idempotency-Key": f"key-{time.time_ns()}"}
    path = made(client, "classify", body, **key)
    assert made(client, "classify", body, **key) == path
    for query, content in (("classify&top_k=1", body), ("classify", body * 2)):
        answer = client.post(f"/jobs?operation={query}", content=content, headers=LINES | key)
        assert answer.status_code == 422
        assert answer.json()["code"] == "idempotency_mismatch"
    finished(client, path)


def test_a_job_is_cancelled_and_its_results_stay_until_it_is_removed(
    client: httpx.Client, folder: Path
) -> None:
    photo = f"data:image/jpeg;base64,{base64.b64encode(jpeg(1000, 1000)).decode()}"
    path = made(client, "filter&name=nl_means", manifest(*[{"data": photo}] * 300))
    until(lambda: client.get(path).json()["state"] == "running")
    answer = client.post(f"{path}/cancel")
    assert answer.status_code == 200
    assert answer.json()["state"] in ("cancelling", "cancelled")
    job = finished(client, path)
    assert job["state"] == "cancelled"
    assert client.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert len(records(client, path)) == job["items"]["done"] < 300
    id_ = job["id"]
    assert (folder / "jobs" / id_).is_dir()
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == client.get(f"{path}/results").status_code == 404
    assert not (folder / "jobs" / id_).exists()


def test_a_wrong_job_is_refused_whole(client: httpx.Client, folder: Path) -> None:
    one, none = (packed(**files)["application/zip"] for files in ({"a": b"x"}, {}))
    outside = b'{"path": "in/../in/a/../../x"}'
    forms: list[tuple[dict[str, bytes], int, str]] = [
        ({"archive": b"PK\x03\x04"}, 422, "archive"),
        ({"archive": one, "manifest": b'{"path": "b"}'}, 400, "no file"),
        ({"archive": one, "manifest": outside}, 400, "line 1"),
        ({"manifest": b'{"url": "x"}'}, 400, "no `archive`"),
        ({"archive": none}, 400, "no files"),
        ({"files": b"x"}, 422, "one `manifest` and one `archive`"),
    ]
    bodies = [
        ("operation=classify", b'{"url": "a"}\n{"url"}', LINES, 400, "line 2 of the manifest"),
        ("operation=classify", b"", LINES, 400, "has no item"),
        ("operation=classify", b"x", {"Content-Type": "text/csv"}, 415, "text/csv"),
        ("operation=classify&top_k=0", b"x", LINES, 422, "top_k"),
        ("operation=classify&top_k=1&top_k=2", b"x", LINES, 422, "more than once"),
        ("operation=classify&operation=filter", b"x", LINES, 422, "more than once"),
        ("operation=filter&name=blur", b"x", LINES, 422, "blur"),
        ("operation=classify", b"x", LINES | {"Content-Encoding": "br"}, 415, "is br"),
        ("operation=sort", b"x", LINES, 422, "filter, process is needed, not 'sort'"),
        ("", b"x", LINES, 422, "process is needed, for example ?operation=classify"),
        ("operation=classify", b'{"url": "a"}\n' * 501, LINES, 413, "more than 500 items"),
    ]
    before = {*(folder / "jobs").iterdir()}
    answers = [
        (client.post("/jobs?operation=classify", files=files), status, text)
        for files, status, text in forms
    ]
    answers += [
        (client.post(f"/jobs?{query}", content=body, headers=kind), status, text)
        for query, body, kind, status, text in bodies
    ]
    for answer, status, text in answers:
        assert (answer.status_code, text in answer.text) == (status, True), answer.text
    assert {*(folder / "jobs").iterdir()} == before


def test_jobs_are_listed_by_pages_the_newest_first(client: httpx.Client) -> None:
    paths = []
    for _ in range(3):
        paths.append(made(client, "classify", manifest({"data": "data:,"})))
        finished(client, paths[-1])
    page = client.get("/jobs?limit=2&state=succeeded").json()
    ids = [each["id"] for each in page["jobs"]]
    assert [f"/jobs/{each}" for each in ids] == [paths[2], paths[1]]
    following = client.get(page["next"]).json()
    assert f"/jobs/{following['jobs'][0]['id']}" == paths[0]
    assert client.get("/jobs?state=running").json() == {"jobs": []}


def test_an_unknown_job_is_not_found(client: httpx.Client) -> None:
    for method, path in (("GET", "x"), ("GET", "x/results"), ("DELETE", "x"), ("POST", "x/cancel")):
        answer = client.request(method, f"/jobs/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_without_a_folder_the_answer_names_the_setting(server: Any) -> None:
    for path in ("", "/x", "/x/results"):
        answer = server.client.get(f"/jobs{path}")
        assert (answer.status_code, answer.json()["code"]) == (501, "jobs_disabled")
        assert "DARKROOM_DATA_FOLDER" in answer.json()["detail"]


@pytest.mark.parametrize("front_ends", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_job_survives_kills_with_every_item_once(
    tmp_path: Path, front_ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = partial(serving, program=COLD, environment=FILTERS | {"TESTS_LEASE": "2"})
    monkeypatch.setattr(jobs_killed, "serving", cold)
    given = jobs_killed.arguments().parse_args(
        f"--images 150 --kills 1 --front-ends {front_ends} --operation filter".split()
    )
    photos = jobs_killed.drawn(tmp_path / "photos", 64)
    job = jobs_killed.Undertaking(tmp_path / "data", photos, given)
    assert jobs_killed.killed(job, given, random.Random(1)) == []
