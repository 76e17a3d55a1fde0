"""Jobs over both clients: what is sent, and how results go on after a broken connection."""

import base64
import json
import time
from pathlib import Path

import pytest

from clients.python.tests.scripted import (
    Answer,
    Exchange,
    broken_after,
    call,
    document,
    problem,
    records,
    scripted,
    sends,
)
from darkroom_client import DeadlineExceeded, Image, ImageResult, Job
from darkroom_client.jobs import FIRST_PAUSE

pytestmark = pytest.mark.parametrize("kind", ["sync", "async"])


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pause as long as a deadline needs, but no longer; return the pauses that were asked for."""
    found: list[float] = []

    async def pause(_wire: object, seconds: float) -> None:
        found.append(seconds)
        if seconds < FIRST_PAUSE:
            time.sleep(seconds)  # noqa: ASYNC251  # the loop has one call

    for name in ("sync_side.SyncWire", "async_side.AsyncWire"):
        monkeypatch.setattr(f"darkroom_client.{name}.pause", pause)
    return found


def job(state: str, done: int = 0, total: int = 5, status: int = 200) -> Answer:
    """Answer with a job."""
    return document(described(state, done, total), status)


def described(state: str, done: int = 0, total: int = 5, id_: str = "j1") -> dict[str, object]:
    """Return a job as the server describes it."""
    items = {"total": total, "done": done, "succeeded": done, "failed": 0}
    made: dict[str, object] = {"id": id_, "state": state, "operation": "classify", "items": items}
    return made | {"created": "2026-01-01T00:00:00.5Z", "options": {"top_k": "1"}}


def lines(*indices: int) -> Answer:
    """Answer with results."""
    return sends(records(*indices))


def test_a_job_is_made_of_a_manifest_with_files_and_urls(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"abc")
    images = [tmp_path / "a.jpg", "https://example.com/b.jpg", Image(b"xyz", id="mine")]
    with scripted(job("queued", status=202)) as server:
        made = call(
            kind, server.url, "jobs.create", iter(images), top_k=1, webhook="https://a.example/"
        )
        (request,) = server.requests
    assert isinstance(made, Job)
    assert (made.id, made.state, made.created.year) == ("j1", "queued", 2026)
    assert [json.loads(line) for line in request.body.splitlines()] == [
        {
            "id": str(tmp_path / "a.jpg"),
            "data": f"data:image/*;base64,{base64.b64encode(b'abc').decode()}",
        },
        {"id": "https://example.com/b.jpg", "url": "https://example.com/b.jpg"},
        {"id": "mine", "data": f"data:image/*;base64,{base64.b64encode(b'xyz').decode()}"},
    ]
    assert request.headers["content-type"] == "application/x-ndjson"
    assert "operation=classify&top_k=1&webhook=https%3A%2F%2Fa.example%2F" in request.path


def test_a_job_that_is_sent_again_has_the_same_key_and_body(kind: str) -> None:
    refused = problem(503, "overloaded", Retry_After="0")
    with scripted(refused, job("queued", status=202)) as server:
        call(kind, server.url, "jobs.create", [b"abc"], "filter", ops=["sepia"], format="png")
        first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    assert "operation=filter&format=png&ops=%5B%7B%22name%22%3A%22sepia%22%7D%5D" in first.path


def test_a_file_that_cannot_be_read_makes_no_job(kind: str, tmp_path: Path) -> None:
    with scripted() as server:
        with pytest.raises(FileNotFoundError):
            call(kind, server.url, "jobs.create", [b"abc", tmp_path / "none.jpg"])
        assert server.requests == []


def test_a_job_is_made_of_a_file_by_its_name(kind: str, tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with scripted(job("queued", status=202)) as server:
        call(kind, server.url, "jobs.create_from", tmp_path / "photos.zip")
        assert server.requests[0].headers["content-type"] == "application/zip"
        assert server.requests[0].body == b"PK"
        with pytest.raises(ValueError, match="a job is made of a file named"):
            call(kind, server.url, "jobs.create_from", tmp_path / "photos.txt")


def test_a_job_is_made_of_a_bucket(kind: str) -> None:
    with scripted(job("queued", status=202)) as server:
        call(kind, server.url, "jobs.create_from_storage", "s3://b/in/", include="*.jpg", top_k=1)
        (request,) = server.requests
    asked = "/jobs?operation=classify&source=s3%3A%2F%2Fb%2Fin%2F&top_k=1&include=%2A.jpg"
    assert (request.path, request.body) == (asked, b"")
    assert request.headers["idempotency-key"]


def indices(found: list[ImageResult]) -> list[int]:
    return [each.index for each in found]


def test_results_go_on_where_the_connection_broke(kind: str) -> None:
    broken = [broken_after(2), broken_after(0), broken_after(1)]
    with scripted(*broken, lines(7, 8), job("succeeded", 5)) as server:
        found = call(kind, server.url, "jobs.results", "j1")
        paths = [each.path for each in server.requests]
    assert indices(found) == [0, 1, 0, 7, 8]
    starts = [f"/jobs/j1/results?offset={n}&follow=true" for n in (0, 2, 2, 3)]
    assert paths == [*starts, "/jobs/j1"]


def test_results_are_followed_until_the_job_has_finished(kind: str) -> None:
    answers = [lines(0, 1), job("running", 2), lines(2), job("succeeded", 5), lines(4, 3)]
    with scripted(*answers, job("succeeded", 5)) as server:
        assert indices(call(kind, server.url, "jobs.results", "j1")) == [0, 1, 2, 4, 3]


def test_waiting_ends_with_the_job_and_tells_how_far_it_is(kind: str) -> None:
    seen: list[Job] = []
    with scripted(job("running", 3), job("succeeded", 5)) as server:
        found = call(kind, server.url, "jobs.wait", "j1", progress=seen.append)
    assert (found.state, [each.items.done for each in seen]) == ("succeeded", [3, 5])


def test_waiting_looks_once_more_when_its_time_ends(kind: str) -> None:
    with scripted(job("running", 3), job("succeeded", 5)) as server:
        assert call(kind, server.url, "jobs.wait", "j1", within=0.1).state == "succeeded"
    with (
        scripted(job("running", 3), job("running", 3)) as server,
        pytest.raises(DeadlineExceeded, match="job j1 is running"),
    ):
        call(kind, server.url, "jobs.wait", "j1", within=0.1)


def test_a_job_that_has_finished_is_not_removed_by_cancelling_it(kind: str) -> None:
    with scripted(job("succeeded", 5)) as server:
        assert call(kind, server.url, "jobs.cancel", "j1").state == "succeeded"
        assert [each.path for each in server.requests] == ["/jobs/j1/cancel"]


def test_removing_a_job_cancels_it_before(kind: str) -> None:
    answers = [job("cancelling", status=202), job("cancelled"), sends(b"", status=204)]
    with scripted(*answers) as server:
        assert call(kind, server.url, "jobs.delete", "j1") is None
        assert len(server.requests) == 3


def test_a_job_that_an_unanswered_try_removed_is_gone(kind: str) -> None:
    def unanswered(exchange: Exchange) -> None:
        exchange.handler.close_connection = True

    with scripted(unanswered, problem(404, "job_not_found")) as server:
        assert call(kind, server.url, "jobs.delete", "j1") is None


def test_a_list_is_read_page_by_page(kind: str) -> None:
    jobs = [described("queued", id_=f"j{n}") for n in range(100)]
    first = document({"jobs": jobs, "next": "/jobs?more"})
    with scripted(first, document({"jobs": jobs[:20], "next": None})) as server:
        assert len(call(kind, server.url, "jobs.list", state="queued", limit=150)) == 120
        assert [each.path for each in server.requests] == [
            "/jobs?state=queued&limit=100",
            "/jobs?state=queued&limit=50&before=j99",
        ]


def test_failed_images_make_a_job_with_the_options_of_the_first(kind: str) -> None:
    with scripted(job("succeeded", 5), job("queued", status=202)) as server:
        call(kind, server.url, "jobs.retry", "j1", webhook="https://a.example/")
        _, request = server.requests
    asked = "operation=classify&retry_of=j1&top_k=1&webhook=https%3A%2F%2Fa.example%2F"
    assert request.path == f"/jobs?{asked}"
    assert request.headers["idempotency-key"]


def test_failed_images_are_read_once_over_broken_connections(kind: str) -> None:
    def failed(state: str, *indices: int) -> Answer:
        return sends(records(*indices, status="error"), X_Job_State=state)

    running = job("running", 3)
    answers = [broken_after(2), failed("running", 0, 1, 4), running, failed("failed", 0, 1, 4, 6)]
    with scripted(*answers, job("failed", 5)) as server:
        found = call(kind, server.url, "jobs.results", "j1", offset=2, status="error")
        paths = [each.path for each in server.requests if "results" in each.path]
    assert indices(found) == [0, 1, 4, 6]
    assert paths == ["/jobs/j1/results?offset=2&follow=true&status=error"] * 3


def test_a_server_that_has_no_new_result_is_not_asked_at_once(
    kind: str, pauses: list[float]
) -> None:
    answers = [lines(), job("running", 0), lines(0), job("succeeded", 1, total=1)]
    with scripted(*answers) as server:
        assert indices(call(kind, server.url, "jobs.results", "j1")) == [0]
    assert pauses == [FIRST_PAUSE]


@pytest.mark.parametrize("id_", ["", "../x", "a/b", "a?b", "é"])
def test_an_id_that_would_be_another_path_is_refused(kind: str, id_: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a job"):
        call(kind, "http://127.0.0.1:9", "jobs.get", id_)
