"""ETag, If-None-Match and Cache-Control at a real server."""

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.conftest import Start, origin
from tests.pictures import jpeg

ASK = {"If-None-Match": '""', "Content-Type": "image/jpeg"}
"""Headers of a client that has no tag yet and asks for one."""

SEPIA = "/filter?name=sepia&format=png"


def counted(client: httpx.Client, metric: str) -> float:
    """Return the sum of all series of a metric."""
    text = client.get("/metrics").text
    return sum(map(float, re.findall(rf"^darkroom_{metric}(?:\{{.*\}})? (\S+)$", text, re.M)))


@pytest.mark.parametrize("path", [SEPIA, "/classify?top_k=1"])
def test_the_same_image_is_not_computed_again_for_a_client_that_has_its_answer(
    client: httpx.Client, path: str
) -> None:
    first = client.post(path, content=jpeg(), headers=ASK)
    assert first.status_code == 200
    assert first.headers["ETag"].startswith("W/")
    before = counted(client, "images_total")
    again = client.post(
        path, content=jpeg(), headers=ASK | {"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Vary"] == first.headers["Vary"] == "Accept"
    assert counted(client, "images_total") == before


def test_the_content_behind_a_url_is_compared_after_the_fetch(client: httpx.Client) -> None:
    files = {"/a.jpg": jpeg()}
    with origin(lambda path, _: (200, files[path]) if path in files else (404, b"")) as address:
        body = {"urls": [f"{address}/a.jpg"]}
        first = client.post("/classify", json=body, headers={"If-None-Match": '""'})
        assert "fetch" in first.headers["Server-Timing"]
        tag = first.headers["ETag"]
        assert (
            client.post("/classify", json=body, headers={"If-None-Match": tag}).status_code == 304
        )
        files["/a.jpg"] = jpeg(1)
        assert (
            client.post("/classify", json=body, headers={"If-None-Match": tag}).status_code == 200
        )
        del files["/a.jpg"]
        gone = client.post("/classify", json=body, headers={"If-None-Match": tag})
        assert gone.status_code == 502
        assert "ETag" not in gone.headers


def test_by_setting_good_answers_have_tag_and_cache_control_and_errors_have_neither(
    start: Start,
) -> None:
    settings = {"cache_control": "private, max-age=60"}
    with start(weights="bundled", **settings) as server:
        kind = {"Content-Type": "image/jpeg"}
        good = server.client.post(SEPIA, content=jpeg(), headers=kind)
        assert good.headers["Cache-Control"] == "private, max-age=60"
        unchanged = {"If-None-Match": good.headers["ETag"]}
        same = server.client.post(SEPIA, content=jpeg(), headers=kind | unchanged)
        assert (same.status_code, same.headers["Cache-Control"]) == (304, "private, max-age=60")
        contents = {"0.jpg": jpeg(), "1.jpg": b"no image"}
        broken = [("files", (name, data, "image/jpeg")) for name, data in contents.items()]
        for reply in (
            server.client.post(SEPIA, content=b"no image", headers=kind),
            server.client.post("/filter?name=unknown", content=jpeg(), headers=kind),
            server.client.post("/classify", files=broken),
        ):
            assert not {"etag", "cache-control"} & {name.lower() for name in reply.headers}


@pytest.fixture(scope="module")
def caching(start: Start) -> Iterator[httpx.Client]:
    with start(result_cache=10 << 20) as server:
        yield server.client


@pytest.mark.parametrize("path", [SEPIA, "/classify?top_k=1"])
def test_a_result_that_is_kept_is_sent_again_without_computing(
    caching: httpx.Client, path: str
) -> None:
    kind = {"Content-Type": "image/jpeg"}
    first = caching.post(path, content=jpeg(5), headers=kind)
    batches, hits = (
        counted(caching, "batch_size_count"),
        counted(caching, "result_cache_hits_total"),
    )
    again = caching.post(path, content=jpeg(5), headers=kind)
    assert 'result;desc="cached"' in again.headers["Server-Timing"]
    assert counted(caching, "batch_size_count") == batches
    assert counted(caching, "result_cache_hits_total") == hits + 1
    if path == SEPIA:
        assert again.content == first.content
    else:
        first_record, record = first.json()["results"][0], again.json()["results"][0]
        assert record["predictions"] == first_record["predictions"]
