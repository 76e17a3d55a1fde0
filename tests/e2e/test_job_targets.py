"""Jobs of folders and buckets: sources, outputs, webhooks, and second tries of what failed."""

import base64
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.e2e.conftest import Start
from tests.e2e.test_jobs import finished, records
from tests.pictures import jpeg, png
from tests.server import until

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all tests, whose `in` may be read and whose `out` may be written."""
    return tmp_path_factory.mktemp("targets")


@pytest.fixture
def photos(root: Path, tmp_path: Path) -> Path:
    """Return a folder with two photos, a drawing, and a file that is no image."""
    folder = root / "in" / tmp_path.name
    (folder / "deep").mkdir(parents=True)
    (folder / "1.jpg").write_bytes(jpeg())
    (folder / "deep" / "2 ü.jpg").write_bytes(jpeg())
    (folder / "3.png").write_bytes(png())
    (folder / "note.txt").write_text("no image")
    return folder


@pytest.fixture
def results(root: Path, tmp_path: Path) -> Path:
    folder = root / "out" / tmp_path.name
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def client(start: Start, root: Path) -> Iterator[httpx.Client]:
    with start(
        data_folder=root / "data",
        storage_allow=((root / "in").as_uri(),),
        storage_allow_write=((root / "out").as_uri(),),
        webhook_secret=SECRET,
        fetch_allowed_networks="127.0.0.0/8",
        fetch_ports="1-65535",
    ) as running:
        yield running.client


def post(client: httpx.Client, operation: str, **query: str) -> str:
    """Return the path of a new job without a body."""
    answer = client.post("/jobs", params={"operation": operation, **query})
    assert answer.status_code == 202, answer.text
    path: str = answer.headers["Location"]
    return path


def test_a_folder_is_classified(client: httpx.Client, photos: Path) -> None:
    path = post(client, "classify", source=photos.as_uri(), top_k="1")
    job = finished(client, path)
    assert job["items"] == {"total": 4, "done": 4, "succeeded": 3, "failed": 1}
    found = {each["id"]: each for each in records(client, path)}
    assert {*found} == {"1.jpg", "deep/2 ü.jpg", "3.png", "note.txt"}
    assert found["deep/2 ü.jpg"]["source"] == f"{photos.as_uri()}/deep/2%20%C3%BC.jpg"
    assert found["note.txt"]["error"]["code"] == "unsupported_media"
    [failed] = records(client, path, "?status=error")
    assert failed == found["note.txt"]


def test_names_are_chosen_and_addresses_are_checked(
    client: httpx.Client, photos: Path, results: Path
) -> None:
    taken, long = results / "taken", f"{results.as_uri()}/{300 * 'a'}"
    taken.write_text("a file")
    path = post(client, "classify", source=photos.as_uri(), include="*.png,*.txt")
    assert finished(client, path)["items"]["total"] == 2
    for query, status, text in [
        ({"source": "file:///etc"}, 422, "DARKROOM_STORAGE_ALLOW"),
        ({"source": photos.as_uri(), "destination": photos.as_uri()}, 422, "STORAGE_ALLOW_WRITE"),
        ({"source": photos.as_uri(), "include": "*.gif"}, 422, "there is no file below"),
        ({"source": f"{photos.as_uri()}/none"}, 404, "there is no such file"),
        ({"source": photos.as_uri(), "destination": taken.as_uri()}, 422, "is no folder"),
        ({"source": photos.as_uri(), "destination": f"{long}/1"}, 422, "too long a name"),
        ({"include": "*.gif"}, 422, "below `source`"),
        ({"source": photos.as_uri(), "retry_of": "x"}, 422, "not both"),
        ({"retry_of": "x"}, 404, "there is no job"),
        ({"source": photos.as_uri(), "webhook": "ftp://a.example"}, 422, "http and https"),
    ]:
        answer = client.post("/jobs", params={"operation": "classify", **query})
        assert (answer.status_code, text in answer.text) == (status, True), answer.text


def test_a_body_that_any_web_page_may_send_makes_no_job(
    client: httpx.Client, photos: Path, results: Path
) -> None:
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]:
        query = {"operation": "filter", "name": "invert", "source": photos.as_uri()}
        query["destination"] = results.as_uri()
        answer = client.post("/jobs", params=query, content=b"x", headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media")
        assert kind in answer.json()["detail"]
        assert not [*results.iterdir()]


def test_filtered_images_and_results_go_into_a_folder(
    client: httpx.Client, photos: Path, results: Path
) -> None:
    destination = f"{results.as_uri()}/today"
    path = post(client, "filter", source=photos.as_uri(), destination=destination, name="grayscale")
    until(lambda: client.get(path).json()["destination"]["state"] == "done")
    written = (results / "today" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in written] == records(client, path)
    shown = {each["id"]: each for each in map(json.loads, written)}
    assert shown["note.txt"]["status"] == "error"
    for name in ("1.jpg", "deep/2 ü.jpg", "3.png"):
        image = shown[name]["image"]
        assert "data" not in image
        data = (results / "today" / image["name"]).read_bytes()
        assert len(data) == image["bytes"]
        assert Image.open(BytesIO(data)).size == (image["width"], image["height"])
    names = sorted(each.name for each in (results / "today" / "images").iterdir())
    assert names == ["1.jpg", "2 ü.jpg", "3.png"]


def test_what_failed_is_tried_again_as_a_job_of_its_own(client: httpx.Client, photos: Path) -> None:
    first = post(client, "classify", source=photos.as_uri())
    finished(client, first)
    (photos / "note.txt").write_bytes(png())
    second = post(client, "classify", retry_of=first.rpartition("/")[2])
    finished(client, second)
    [record] = records(client, second)
    assert (record["id"], record["status"]) == ("note.txt", "ok")
    answer = client.post(
        "/jobs", params={"operation": "classify", "retry_of": second.rpartition("/")[2]}
    )
    assert answer.status_code == 422
    assert "no item of job" in answer.text
