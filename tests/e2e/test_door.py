"""Overload, deadlines, leaving clients, slow bodies, health and metrics."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from app.admission.counters import Total
from models.domain.backend import Load
from models.domain.job import Completed, Job
from models.exit_codes import ExitCode
from tests.e2e.conftest import Running, Start
from tests.pictures import jpeg
from tests.server import PATIENCE, until

JPEG = {"Content-Type": "image/jpeg"}


class Stuck:
    """A backend that answers no jobs but those of operations that the real one may answer."""

    def __init__(self, real: Any, answers: tuple[type, ...]) -> None:
        self.real, self.answers = real, answers
        self.arrived = threading.Semaphore(0)
        self.cancelled = threading.Semaphore(0)

    async def run(self, job: Job) -> Completed:
        if isinstance(job.operation, self.answers):
            completed: Completed = await self.real.run(job)
            return completed
        self.arrived.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.release()
        raise AssertionError

    def load(self) -> Load:
        return Load("stuck", 0, 0, 10.0, alive=True)

    async def aclose(self) -> None:
        pass


@contextmanager
def stuck_backend(running: Running, *answers: type) -> Iterator[Stuck]:
    """Replace what the pipeline submits to; the canary and the rest stay real."""
    pipeline = running.app.state.service.pipeline
    real = pipeline._backend
    pipeline._backend = Stuck(real, answers)
    try:
        yield pipeline._backend
    finally:
        pipeline._backend = real


def post_raw(port: int, headers: str = "") -> socket.socket:
    body = jpeg()
    connection = socket.create_connection(("127.0.0.1", port))
    head = f"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n{headers}"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_overload_is_refused_at_the_door_with_retry_after_and_harms_nobody(start: Start) -> None:
    with start(max_images_in_flight=2) as running:
        with stuck_backend(running) as stuck:
            held = [post_raw(running.port) for _ in range(2)]
            for _ in held:
                assert stuck.arrived.acquire(timeout=PATIENCE)
            refused = running.client.post("/classify", content=jpeg(), headers=JPEG)
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert int(refused.headers["Retry-After"]) >= 1
            assert running.client.get("/readyz").status_code == 200
            for connection in held:
                connection.close()
                assert stuck.cancelled.acquire(timeout=PATIENCE)
        admission = running.app.state.service.admission
        until(lambda: not admission.counters.total(Total.IMAGES))
        assert running.client.post("/classify", content=jpeg(), headers=JPEG).status_code == 200
        metrics = running.client.get("/metrics").text
        assert 'darkroom_rejections_total{reason="images_in_flight"} 1.0' in metrics


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_a_hung_backend_answers_504_at_the_deadline(server: Running, accept: str) -> None:
    with stuck_backend(server):
        for milliseconds in ("100", "1000", "10000"):  # a busy machine may refuse the first at once
            headers = JPEG | {"X-Deadline-Ms": milliseconds, "Accept": accept}
            reply = server.client.post("/classify", content=jpeg(), headers=headers)
            if reply.status_code != 503:
                break
    if accept == "application/json":
        assert (reply.status_code, reply.json()["code"]) == (504, "deadline_exceeded")
    else:
        assert reply.json()["error"]["code"] == "deadline_exceeded"


def test_without_weights_filters_work_and_classify_says_what_to_do(start: Start) -> None:
    missing = {"weights": "imagenet1k_v1", "cache_folder": os.devnull}  # no folder to download to
    with start(**missing, max_images_in_flight=9) as running:
        reply = running.client.post("/classify", content=jpeg(), headers=JPEG)
        assert (reply.status_code, reply.json()["code"]) == (503, "weights_missing")
        assert "darkroom weights fetch" in reply.json()["detail"]
        assert running.client.post("/filter?name=invert", content=jpeg(), headers=JPEG).is_success
        assert running.client.get("/readyz").status_code == 200
        verbose = running.client.get("/readyz?verbose").json()
        assert "darkroom weights fetch" in verbose["weights"]["problem"]


def test_a_server_ends_with_its_worker_and_says_so_by_its_exit_code(start: Start) -> None:
    with start() as running:
        assert running.client.get("/readyz").status_code == 200
        running.app.state.service.backend._worker.stop()
        running.serving.join()  # the time limit of the test bounds it
        assert running.server.exit_code == ExitCode.WORKER_DIED


def test_metrics_have_the_documented_names(client: httpx.Client) -> None:
    client.post("/classify", content=jpeg(), headers=JPEG)
    text = client.get("/metrics").text
    for name in (
        'darkroom_http_request_duration_seconds_count{method="POST",route="/classify",status="200"}',
        'darkroom_stage_duration_seconds_count{stage="compute"}',
        'darkroom_batch_size_count{network="resnet18",operation="classify"}',
        'darkroom_batch_releases_total{reason="idle"}',
        'darkroom_images_total{operation="classify",outcome="ok"}',
        "darkroom_queue_images 0.0",
        "darkroom_in_flight_images 0.0",
        "darkroom_build_info{",
        'darkroom_device_images_total{device="cpu"}',
        'darkroom_device_busy_seconds_total{device="cpu"}',
        'darkroom_device_images_per_second{device="cpu"}',
        'darkroom_device_queue_images{device="cpu"}',
        'darkroom_device_info{device="cpu",uuid=""} 1.0',
        "process_resident_memory_bytes",
    ):
        assert name in text, name


def test_a_request_id_is_kept_when_it_is_sane(client: httpx.Client) -> None:
    for given, kept in [("abc-1", True), ("x" * 129, False), ("a b", False)]:
        found = client.get("/livez", headers={"X-Request-ID": given}).headers["X-Request-ID"]
        assert (found == given) is kept


def test_unknown_paths_and_methods_are_problems(client: httpx.Client) -> None:
    for method, path, status, title, detail in [
        ("GET", "/nope", 404, "Not Found", "there is no /nope; GET / shows what there is"),
        ("PUT", "/filter", 405, "Method Not Allowed", "/filter takes POST"),
        ("GET", "/filters/x", 404, "Not Found", "no filter 'x'; GET /filters lists them all"),
    ]:
        reply = client.request(method, path)
        assert reply.status_code == status
        assert (reply.json()["title"], reply.json()["detail"]) == (title, detail)
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert reply.json()["request_id"] == reply.headers["X-Request-ID"]
