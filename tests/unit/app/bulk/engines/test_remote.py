"""A server in place of the engine in this process."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bulk.engines import remote
from app.bulk.engines.backoff import Backoff, told_seconds
from app.bulk.engines.engine import tasks_of
from app.bulk.engines.remote import Remote
from app.bulk.engines.remote_requests import RemoteClassification
from app.bulk.engines.work import Classification
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.sources.source import Source

MODEL = {
    "name": "resnet18",
    "sha256": "ab12",
    "preprocessing": 1,
    "precision": "fp32",
    "classes": [{"class_id": 0, "label": "cat"}],
}
OK = {"status": "ok", "predictions": [{"label": "cat", "class_id": 0, "score": 0.5}]}

Handler = Callable[[httpx.Request, int], httpx.Response]
"""Answers a request; the second argument is the number of its images."""


def lines(*records: dict[str, Any]) -> httpx.Response:
    text = "".join(json.dumps(each) + "\n" for each in records)
    return httpx.Response(200, text=text, headers={"Content-Type": "application/x-ndjson"})


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, json={"code": code, "detail": f"it is {code}"}, headers=headers)


def good(_request: httpx.Request, count: int) -> httpx.Response:
    return lines(*({"index": number, "source": "0", **OK} for number in range(count)))


def records_of(
    folder: Path, handler: Handler, names: tuple[str, ...] = ("a.jpg", "b.jpg", "c.jpg")
) -> list[dict[str, Any]]:
    """Classify files by servers that answer as `handler` says."""
    for name in names:
        if not name.startswith("missing"):
            (folder / name).write_bytes(b"image")

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/models":
            return httpx.Response(200, json={"models": [MODEL]})
        return handler(request, request.content.count(b'name="files"'))

    async def scenario() -> list[dict[str, Any]]:
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        work = RemoteClassification(Classification({"top_k": 1}, "resnet18"))
        engine = Remote(client, ["http://one/", "http://two"], work, 1 << 20)
        try:
            await engine.begin()
            sources = iter([Source(str(folder / name), name) for name in names])
            async with contextlib.aclosing(engine.answers(tasks_of(sources))) as answers:
                return [json.loads(each.line) async for found in answers for each in found]
        finally:
            await engine.aclose()

    return asyncio.run(scenario())


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for nothing; return the waits. Event loops of other threads go on to wait."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("app.bulk.engines.backoff.sleep", sleep)
    return waits


def test_records_have_the_names_and_numbers_of_this_command(tmp_path: Path) -> None:
    found = records_of(tmp_path, good)
    assert [each["index"] for each in found] == [0, 1, 2]
    assert [Path(each["source"]).name for each in found] == ["a.jpg", "b.jpg", "c.jpg"]
    assert [*found[0]] == ["index", "source", "status", "predictions"]


def test_a_saturated_server_is_asked_again_when_it_says(
    tmp_path: Path, no_waiting: list[float]
) -> None:
    asked: list[str] = []

    def busy(request: httpx.Request, count: int) -> httpx.Response:
        asked.append(request.url.host)
        if len(asked) < 3:
            return problem(503, "overloaded", **{"Retry-After": "7"})
        return good(request, count)

    assert len(records_of(tmp_path, busy)) == 3
    assert asked == ["one", "two", "one"]
    assert no_waiting == [7.0, 7.0]


def test_only_images_without_an_answer_are_sent_again(tmp_path: Path) -> None:
    counts: list[int] = []

    def partly(request: httpx.Request, count: int) -> httpx.Response:
        counts.append(count)
        if len(counts) > 1:
            return good(request, count)
        late = {"status": "error", "error": {"status": 504, "code": "deadline_exceeded"}}
        return lines({"index": 1, **late}, {"index": 0, **OK}, {"index": 2, **OK})

    found = records_of(tmp_path, partly)
    assert counts == [3, 1]
    assert [each["status"] for each in found] == ["ok"] * 3


@pytest.mark.parametrize("torn", ['{"index": 2, "sta', "{}", "[]", '{"index": 9}', '{"index": ""}'])
def test_images_behind_the_place_where_an_answer_broke_off_are_sent_again(
    tmp_path: Path, torn: str
) -> None:
    """A proxy that speaks HTTP/1.0 ends a broken answer as a whole one."""
    counts: list[int] = []

    def cut(request: httpx.Request, count: int) -> httpx.Response:
        counts.append(count)
        if len(counts) > 1:
            return good(request, count)
        whole = lines({"index": 0, **OK}, {"index": 1, **OK})
        return httpx.Response(200, text=whole.text + torn, headers=dict(whole.headers))

    found = records_of(tmp_path, cut)
    assert counts == [3, 1]
    assert [each["status"] for each in found] == ["ok"] * 3


@pytest.mark.parametrize("body", ["<html>", "[]", '{"models": [{}]}', '{"models": 3}'])
def test_a_server_of_something_else_is_told_from_darkroom(body: str) -> None:
    async def scenario() -> None:
        answer = httpx.MockTransport(lambda _: httpx.Response(200, text=body))
        async with httpx.AsyncClient(transport=answer) as client:
            work = RemoteClassification(Classification({}, "resnet18"))
            with pytest.raises(WrongUsage, match="otherwise than Darkroom does"):
                await Remote(client, ["http://one"], work, 1 << 20).begin()

    asyncio.run(scenario())


def test_a_bad_image_and_a_missing_file_fail_alone(tmp_path: Path) -> None:
    error = {"status": 415, "code": "unsupported_media", "detail": "no image", "title": "x"}

    def one_bad(_request: httpx.Request, count: int) -> httpx.Response:
        assert count == 2
        return lines({"index": 0, "status": "error", "error": error}, {"index": 1, **OK})

    found = records_of(tmp_path, one_bad, ("a.jpg", "missing.jpg", "c.jpg"))
    assert found[0]["error"] == {"code": "unsupported_media", "detail": "no image"}
    assert "cannot read" in found[1]["error"]["detail"]
    assert found[2]["status"] == "ok"


def test_a_request_that_is_refused_as_a_whole_is_taken_apart(tmp_path: Path) -> None:
    def large(request: httpx.Request, count: int) -> httpx.Response:
        if count > 1:
            return problem(413, "too_large")
        if b'"b"' in request.content or len(request.content) > 1 << 20:
            return problem(413, "too_large")
        return good(request, count)

    assert [each["status"] for each in records_of(tmp_path, large)] == ["ok"] * 3


def test_a_missing_key_and_an_unknown_network_end_the_command(tmp_path: Path) -> None:
    with pytest.raises(WrongUsage, match="401: it is unauthorized"):
        records_of(tmp_path, lambda _request, _count: problem(401, "unauthorized"))


def test_a_server_that_never_answers_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.0)

    def gone(request: httpx.Request, _count: int) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(EngineLost, match="no server has answered image 0"):
        records_of(tmp_path, gone)


def test_a_server_that_is_not_reached_is_wrong_usage_with_the_command_that_tells_more() -> None:
    async def scenario() -> None:
        def refused(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("All connection attempts failed", request=request)

        client = httpx.AsyncClient(transport=httpx.MockTransport(refused))
        work = RemoteClassification(Classification({}, "resnet18"))
        try:
            await Remote(client, ["http://one"], work, 1 << 20).begin()
        finally:
            await client.aclose()

    message = "http://one cannot be reached: All connection attempts failed; `darkroom health"
    with pytest.raises(WrongUsage, match=message):
        asyncio.run(scenario())


def test_waits_grow_and_are_at_least_what_the_server_says() -> None:
    waits = Backoff(100.0)
    assert waits.seconds(9.0) == 9.0
    assert 0.5 <= waits.seconds(0.0) <= 1.0
    assert [told_seconds(each) for each in (None, "2.5", "soon", "-1", "1e9")] == [
        0.0,
        2.5,
        0.0,
        0.0,
        300.0,
    ]
