"""Images by URL, through the whole service, from an origin on 127.0.0.1."""

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.conftest import Start, origin
from tests.pictures import jpeg


def answer(path: str, _body: bytes) -> tuple[int, bytes]:
    """`/3` is drawing 3; `/broken` is no image; `/inside` redirects to a private address."""
    name = path.strip("/")
    status = {"missing": 404, "inside": 302}.get(name, 200)
    return status, jpeg(int(name)) if name.isdigit() else b"no image"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with origin(answer, Location="http://10.0.0.1/secret") as found:
        yield found


def test_uploads_and_urls_in_one_request_are_answered_in_order(
    client: httpx.Client, address: str
) -> None:
    files = [("files", ("0.jpg", jpeg(0), "image/jpeg"))]
    urls = [f"{address}/{name}" for name in ("1", "broken", "missing", "inside", "0")]
    reply = client.post("/classify", files=files, data={"urls": urls, "top_k": "1"})
    results = reply.json()["results"]
    assert [r["source"] for r in results] == [*urls, "0.jpg"]  # httpx sends fields first
    statuses = [r["error"]["status"] if "error" in r else 200 for r in results]
    assert statuses == [200, 415, 502, 422, 200, 200]
    uploaded, fetched = (result["predictions"][0] for result in results[-2:])
    assert uploaded["class_id"] == fetched["class_id"]
    # Scores depend in their last digits on the size of the batch, and a batch on who came when.
    assert uploaded["score"] == pytest.approx(fetched["score"], rel=0.01)
    assert "fetch" in results[0]["timing"]


def test_a_private_address_is_refused_unless_the_operator_allows_it(
    start: Start, address: str
) -> None:
    with start() as running:
        reply = running.client.post("/classify", json={"urls": [f"{address}/1"]})
        assert (reply.status_code, reply.json()["code"]) == (422, "address_refused")
