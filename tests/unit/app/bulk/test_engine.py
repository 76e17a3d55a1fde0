"""A bulk command as a client: what it sends to servers, and what it makes of their answers."""

import contextlib
import http.client
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from app.bulk import engine
from app.bulk.engine import Engine, start
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.run import tasks_of
from app.bulk.sources.source import Source
from app.bulk.work import Classification
from app.processes.private_server import PrivateServer
from models.exit_codes import ExitCode
from models.settings import Settings

LIMIT = 1 << 20
MODEL = {
    "name": "resnet18",
    "sha256": "ab12",
    "preprocessing": 1,
    "precision": "fp32",
    "classes": [{"class_id": 0, "label": "cat"}],
}
OK = {"status": "ok", "predictions": [{"label": "cat", "class_id": 0, "score": 0.5}]}


@dataclass
class Reply:
    """An answer of a server."""

    text: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Asked:
    """A request for the host `host`, with a number of images."""

    host: str
    body: bytes
    images: int


Handler = Callable[[Asked], Reply]


def lines(*records: dict[str, Any]) -> Reply:
    text = "".join(json.dumps(each) + "\n" for each in records)
    return Reply(text, headers={"Content-Type": "application/x-ndjson"})


def problem(status: int, code: str, **headers: str) -> Reply:
    return Reply(json.dumps({"code": code, "detail": f"it is {code}"}), status, headers)


def good(asked: Asked) -> Reply:
    return lines(*({"index": number, "source": "0", **OK} for number in range(asked.images)))


class Connection:
    """Connection to a server that answers as `handler` says."""

    sock = None

    def __init__(self, url: str, handler: Handler) -> None:
        self._url, self._handler = url, handler

    def request(self, method: str, path: str, body: bytes | None, _headers: object) -> None:
        """Answer a request."""
        if method == "GET":
            assert path == "/models"
            self._reply = Reply(json.dumps({"models": [MODEL]}))
            return
        assert body is not None
        asked = Asked(self._url.removeprefix("http://"), body, body.count(b'name="files"'))
        self._reply = self._handler(asked)

    def getresponse(self) -> Any:
        """Return the answer."""
        answer = cast(Any, io.BytesIO(self._reply.text.encode()))
        return type(
            "Answer",
            (),
            {"status": self._reply.status, "headers": self._reply.headers, "read": answer.read},
        )

    def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture(autouse=True)
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], None]:
    """Return what lets all servers answer as a handler says, one connection at a time."""

    def answer_by(handler: Handler) -> None:
        monkeypatch.setattr(engine, "connection", lambda url, _: Connection(url, handler))

    monkeypatch.setattr(engine, "CONNECTIONS", 1)
    answer_by(good)
    return answer_by


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for nothing; return the waits."""
    found: list[float] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            found.append(timeout or 0.0)
            return self.is_set()

    monkeypatch.setattr("app.bulk.engine.Event", Ended)
    return found


Serve = Callable[[Handler], None]


def made(servers: tuple[str, ...] = ("http://one/", "http://two")) -> Engine:
    return Engine(Classification({"top_k": 1}), servers, None, LIMIT)


def records_of(
    folder: Path, names: tuple[str, ...] = ("a.jpg", "b.jpg", "c.jpg")
) -> list[dict[str, Any]]:
    """Classify files by two servers."""
    for name in names:
        if not name.startswith("missing"):
            (folder / name).write_bytes(b"image")
    sources = iter([Source(str(folder / name), name) for name in names])
    with contextlib.closing(made().answers(tasks_of(sources))) as answers:
        return [json.loads(each.line) for found in answers for each in found]


def test_records_have_the_names_and_numbers_of_this_command(tmp_path: Path) -> None:
    found = records_of(tmp_path)
    assert [each["index"] for each in found] == [0, 1, 2]
    assert [Path(each["source"]).name for each in found] == ["a.jpg", "b.jpg", "c.jpg"]
    assert [*found[0]] == ["index", "source", "status", "predictions"]


def test_a_saturated_server_is_asked_again_when_it_says(
    serve: Serve, waits: list[float], tmp_path: Path
) -> None:
    hosts: list[str] = []

    def busy(asked: Asked) -> Reply:
        hosts.append(asked.host)
        return good(asked) if len(hosts) > 2 else problem(503, "busy", **{"Retry-After": "7"})

    serve(busy)
    assert len(records_of(tmp_path)) == 3
    assert hosts == ["one", "two", "one"]
    assert waits == [7.0, 7.0]


LATE = {"status": "error", "error": {"status": 504, "code": "deadline_exceeded"}}


@pytest.mark.parametrize(
    "rest",
    [
        json.dumps({"index": 2, **LATE}),
        # A proxy that speaks HTTP/1.0 ends a broken answer as a whole one.
        *['{"index": 2, "sta', "{}", "[]", '{"index": 9}', '{"index": ""}'],
    ],
)
def test_only_images_without_an_answer_are_sent_again(
    rest: str, serve: Serve, tmp_path: Path
) -> None:
    counts: list[int] = []

    def partly(asked: Asked) -> Reply:
        counts.append(asked.images)
        if len(counts) > 1:
            return good(asked)
        whole = lines({"index": 1, **OK}, {"index": 0, **OK})
        return Reply(whole.text + rest, headers=whole.headers)

    serve(partly)
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3
    assert counts == [3, 1]


@pytest.mark.parametrize("body", ["<html>", "[]", '{"models": [{}]}', '{"models": 3}'])
def test_a_server_of_something_else_is_told_from_darkroom(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Connection, "request", lambda self, *_: setattr(self, "_reply", Reply(body))
    )
    with pytest.raises(WrongUsage, match="otherwise than Darkroom does"):
        made()


def test_a_bad_image_and_a_missing_file_fail_alone(serve: Serve, tmp_path: Path) -> None:
    error = {"status": 415, "code": "unsupported_media", "detail": "no image", "title": "x"}

    def one_bad(asked: Asked) -> Reply:
        assert asked.images == 2
        return lines({"index": 0, "status": "error", "error": error}, {"index": 1, **OK})

    serve(one_bad)
    found = records_of(tmp_path, ("a.jpg", "missing.jpg", "c.jpg"))
    assert found[0]["error"] == {"code": "unsupported_media", "detail": "no image"}
    assert "cannot read" in found[1]["error"]["detail"]
    assert found[2]["status"] == "ok"


def test_a_request_that_is_refused_as_a_whole_is_taken_apart(serve: Serve, tmp_path: Path) -> None:
    serve(lambda asked: problem(413, "too_large") if asked.images > 1 else good(asked))
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3


def test_large_files_go_alone(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def counted(asked: Asked) -> Reply:
        counts.append(asked.images)
        return good(asked)

    serve(counted)
    monkeypatch.setattr(engine, "BYTES", 2 * len(b"image"))
    assert len(records_of(tmp_path)) == 3
    assert counts == [2, 1]


def test_a_missing_key_ends_the_command(serve: Serve, tmp_path: Path) -> None:
    serve(lambda _: problem(401, "unauthorized"))
    with pytest.raises(WrongUsage, match="401: it is unauthorized"):
        records_of(tmp_path)


def refused(_: Asked) -> Reply:
    raise ConnectionRefusedError("refused")


def test_a_server_that_never_answers_ends_the_command(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PATIENCE", 0.0)
    serve(refused)
    with pytest.raises(EngineLost, match="no server has answered image 0"):
        records_of(tmp_path)


def test_a_server_that_is_not_reached_is_wrong_usage_with_the_command_that_tells_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Connection, "request", lambda *_: refused(Asked("", b"", 0)))
    message = "http://one cannot be reached: refused; `darkroom health http://one`"
    with pytest.raises(WrongUsage, match=message):
        made()


def test_an_address_that_is_no_url_is_refused() -> None:
    with pytest.raises(WrongUsage, match="--server: 'localhost:8000' is no URL"):
        start(Settings(), Classification({}), ["localhost:8000"], 1)


class Own:
    """Server of the command that has ended."""

    path, connections = "/socket", 1

    def __init__(self, code: int, problem: str = "") -> None:
        self._end = code, problem

    def end(self, _patience: float) -> tuple[int, str]:
        """Return how it has ended."""
        return self._end


@pytest.mark.parametrize(
    ("own", "error", "text"),
    [
        (Own(ExitCode.WRONG_USAGE, "no such weights"), WrongUsage, "^no such weights$"),
        (Own(ExitCode.WORKER_DIED), EngineLost, "exit code 72; the same command goes on"),
    ],
    ids=["wrong-settings", "worker-died"],
)
def test_the_end_of_the_own_server_ends_the_command(
    own: Own, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise http.client.RemoteDisconnected("ended")

    monkeypatch.setattr(Connection, "request", lost)
    with pytest.raises(error, match=text):
        Engine(Classification({}), [], cast(PrivateServer, own), LIMIT)


def test_waits_grow_and_are_at_least_what_the_server_says(waits: list[float]) -> None:
    backoff = engine._Backoff(cast(Any, engine).Event())
    assert all(map(backoff.wait, (9.0, 0.0)))
    assert waits[0] == 9.0
    assert 0.5 <= waits[1] <= 1.0
    headers = (None, "2.5", "soon", "-1", "1e9")
    assert [engine._told_seconds(each) for each in headers] == [0.0, 2.5, 0.0, 0.0, 300.0]


def test_images_before_a_pipe_do_not_wait_for_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in ("before", "after"):
        (tmp_path / name).write_bytes(b"image")

    def sources() -> Iterator[Source]:
        for name in ("before", "pipe", "after"):
            yield Source(str(tmp_path / name), name)

    with contextlib.closing(made().answers(tasks_of(sources()))) as answers:
        assert [Path(json.loads(each.line)["source"]).name for each in next(answers)] == ["before"]
        writer = threading.Thread(target=pipe.write_bytes, args=(b"image",))
        writer.start()
        rest = [json.loads(each.line) for found in answers for each in found]
        writer.join()
    assert [Path(each["source"]).name for each in rest] == ["pipe", "after"]
    assert [each["status"] for each in rest] == ["ok", "ok"]
