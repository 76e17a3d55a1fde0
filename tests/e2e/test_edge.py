"""A server behind each proxy of `docker/edge`, with the file that stands there."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.edge import PROGRAMS, behind
from tests.pictures import jpeg
from tests.server import PATIENCE, serving, until

pytestmark = pytest.mark.slow

JPEG = {"Content-Type": "image/jpeg"}


@dataclass(frozen=True)
class Edge:
    """A client of a proxy, and the log of the server behind it."""

    client: httpx.Client
    log: Path


@pytest.fixture(scope="module", params=PROGRAMS)
def edge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Edge]:
    if PROGRAMS[request.param] is None:
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("edge")
    log = folder / "log"
    flags = ("--weights", "random", "--precision", "fp32", "--log-level", "info")
    limits = ("--max-body-bytes", "2M", "--trusted-proxies", "127.0.0.1")
    with (
        serving(*flags, *limits, log=log) as server,
        behind(request.param, folder, server.port, body="2m") as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
    ):
        yield Edge(client, log)


def test_uploads_and_streams_pass(edge: Edge) -> None:
    files = [("files", (f"{n}.jpg", jpeg(n), "image/jpeg")) for n in range(8)]
    for accept in ("application/json", "application/x-ndjson"):
        answer = edge.client.post("/classify", files=files, headers={"Accept": accept})
        assert answer.status_code == 200
        assert answer.text.count('"status":"ok"') == 8


def test_a_slow_reader_gets_its_whole_answer(edge: Edge) -> None:
    url, photo = "/filter?name=noise&format=png&png_level=0", jpeg(1, 1500, 1000)
    whole = edge.client.post(url, content=photo, headers=JPEG)
    with edge.client.stream("POST", url, content=photo, headers=JPEG) as answer:
        size = 0
        for piece in answer.iter_raw(1 << 20):
            size += len(piece)
            time.sleep(0.1)  # a client that is slower than the server
    assert whole.status_code == answer.status_code == 200
    assert size == len(whole.content) > 4_000_000


def test_the_server_sees_clients_and_no_address_that_they_wrote(edge: Edge) -> None:
    headers = {"X-Forwarded-For": "203.0.113.9", "X-Request-ID": "through-the-edge"}
    answer = edge.client.get("/models", headers=headers)
    assert answer.headers["X-Request-ID"] == "through-the-edge"
    until(lambda: "through-the-edge" in edge.log.read_text())
    (line,) = [each for each in edge.log.read_text().splitlines() if "through-the-edge" in each]
    assert json.loads(line)["client"] == "127.0.0.1"


def test_large_bodies_and_metrics_end_at_the_edge(edge: Edge) -> None:
    assert edge.client.post("/classify", content=bytes(3 << 20), headers=JPEG).status_code == 413
    assert edge.client.get("/metrics").status_code == 403
