"""A bulk command as a client: what it sends to servers, and what it makes of their answers."""

import contextlib
import json
import os
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPResponse
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import pytest

from app.bulk import engine, sender
from app.bulk.engine import Engine, start
from app.bulk.errors import EngineLost, WrongUsage
from app.bulk.run import tasks_of
from app.bulk.sources import Sources
from app.bulk.walk import Source
from app.bulk.work import Classification
from app.cli.commands import health
from app.processes.private_server import PrivateServer
from clients.python.tests.scripted import document, scripted
from darkroom_client.conversation import Attempts, body_of, refusal
from darkroom_client.requests import Call
from darkroom_client.sync_side import run
from models.exit_codes import ExitCode
from models.settings import Settings

NETWORK = {
    "name": "resnet18",
    "sha256": "ab12",
    "label_set": "own",
    "n_classes": 1,
    "random": False,
    "preprocessing": 1,
    "precision": "fp32",
    "device": "cpu",
    "features": 512,
    "classes": [{"class_id": 0, "label": "cat"}],
}
NETWORKS = {"models": [NETWORK]}
OK = {"status": "ok", "predictions": [{"label": "cat", "class_id": 0, "score": 0.5}]}
LATE = {
    "status": "error",
    "error": {"status": 504, "code": "deadline_exceeded", "detail": "late"},
}


class Response(NamedTuple):
    """An answer of a server."""

    status: int
    text: str
    headers: dict[str, str]


Handler = Callable[[str, int], Response]
"""Answers a request to a host, with a number of images; 0 asks for the networks."""
Serve = Callable[[Handler], None]


def lines(*records: dict[str, Any], rest: str = "") -> Response:
    return Response(200, "".join(json.dumps(each) + "\n" for each in records) + rest, {})


def problem(status: int, code: str, **headers: str) -> Response:
    body = json.dumps({"code": code, "detail": f"it is {code}", "status": status})
    return Response(status, body, {"content-type": "application/problem+json", **headers})


def page(text: str, status: int = 200) -> Response:
    return Response(status, text, {"content-type": "text/html"})


class Connection:
    """Connection to a server that answers as a handler says."""

    def __init__(self, handler: Handler, host: str) -> None:
        self._handler, self._host = handler, host
        self.sock: object = self

    def request(self, method: str, path: str, body: bytes | None, _headers: object) -> None:
        """Send a request."""
        assert path in ({"GET": ["/models", "/readyz?verbose="]}.get(method) or ["/classify"])
        images = 0 if body is None else body.count(b'name="files"')
        self._response = self._handler(self._host, images)

    def getresponse(self) -> object:
        """Return its answer."""
        status, text, headers = self._response
        self.sock = None if "connection" in headers else self
        body = BytesIO(text.encode())
        return SimpleNamespace(
            status=status, headers=headers, read=body.read, isclosed=lambda: True
        )

    def close(self) -> None:
        """Close the connection."""


def good(_host: str, images: int) -> Response:
    return lines(*({"index": number, "source": "0", **OK} for number in range(images)))


def connect(monkeypatch: pytest.MonkeyPatch, handler: Handler) -> None:
    def connected(server: SplitResult, _path: str | None) -> Connection:
        return Connection(handler, str(server.hostname))

    monkeypatch.setattr(sender, "connected", connected)


@pytest.fixture
def counts() -> list[int]:
    """Return the numbers of images of all requests."""
    return []


@pytest.fixture(autouse=True)
def serve(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> Serve:
    """Return what lets all servers answer as a handler says, one connection at a time."""

    def answer_by(handler: Handler) -> None:
        def answered(host: str, images: int) -> Response:
            if images:
                counts.append(images)
                return handler(host, images)
            return Response(200, json.dumps(NETWORKS), {})

        connect(monkeypatch, answered)

    monkeypatch.setattr(engine, "CONNECTIONS", 1)
    answer_by(good)
    return answer_by


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wait for nothing; return the waits."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def made(servers: tuple[str, ...] = ("http://one/", "http://two")) -> Engine:
    return Engine(Classification({"top_k": 1}), servers, None, 1 << 20)


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

    def busy(host: str, images: int) -> Response:
        hosts.append(host)
        return (
            good(host, images) if len(hosts) > 2 else problem(503, "busy", **{"retry-after": "7"})
        )

    serve(busy)
    assert len(records_of(tmp_path)) == 3
    assert hosts in (["one", "two", "one"], ["two", "one", "two"])
    assert [7 <= each < 9 for each in waits] == [True, True]


@pytest.mark.parametrize(
    "rest",
    [
        json.dumps({"index": 2, **LATE}) + "\n",
        # A proxy that speaks HTTP/1.0 ends a broken answer as a whole one.
        *['{"index": 2, "sta', "{}", ""],
    ],
)
def test_only_images_without_an_answer_are_sent_again(
    rest: str, serve: Serve, counts: list[int], tmp_path: Path
) -> None:
    def partly(host: str, images: int) -> Response:
        if len(counts) > 1:
            return good(host, images)
        return lines({"index": 1, **OK}, {"index": 0, **OK}, rest=rest)

    serve(partly)
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3
    assert counts == [3, 1]


def test_a_bad_image_and_a_missing_file_fail_alone(serve: Serve, tmp_path: Path) -> None:
    error = {"status": 415, "code": "unsupported_media", "detail": "no image", "title": "x"}

    def one_bad(_host: str, images: int) -> Response:
        assert images == 2
        return lines({"index": 0, "status": "error", "error": error}, {"index": 1, **OK})

    serve(one_bad)
    found = records_of(tmp_path, ("a.jpg", "missing.jpg", "c.jpg"))
    assert found[0]["error"] == {"code": "unsupported_media", "detail": "no image"}
    assert "cannot read" in found[1]["error"]["detail"]
    assert found[2]["status"] == "ok"


def test_a_request_that_is_refused_as_a_whole_is_taken_apart(serve: Serve, tmp_path: Path) -> None:
    serve(lambda host, images: problem(413, "too_large") if images > 1 else good(host, images))
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3


@pytest.mark.parametrize("status", [400, 422, 500])
def test_an_image_that_makes_its_request_fail_has_the_error_alone(
    status: int, serve: Serve, counts: list[int], tmp_path: Path
) -> None:
    def one_fails(host: str, images: int) -> Response:
        bad = images > 1 or len(counts) == 3
        return problem(status, "broken") if bad else good(host, images)

    serve(one_fails)
    found = records_of(tmp_path)
    assert [each["status"] for each in found] == ["ok", "error", "ok"]
    assert found[1]["error"] == {"code": "broken", "detail": "it is broken"}
    assert counts == [3, 1, 1, 1]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_proxy_that_refuses_for_a_while_is_asked_again(
    status: int, serve: Serve, waits: list[float], tmp_path: Path
) -> None:
    proxy = page("<h1>proxy</h1>", status)
    serve(lambda host, images: good(host, images) if waits else proxy)
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3
    assert len(waits) == 1


@pytest.mark.parametrize("comes_back", [True, False])
def test_an_answer_of_another_program_is_asked_for_again_and_then_fails_its_images(
    comes_back: bool, serve: Serve, waits: list[float], tmp_path: Path
) -> None:
    hotel = page("<h1>hotel</h1>\n\n")
    serve(lambda host, images: good(host, images) if comes_back and waits else hotel)
    statuses = [each["status"] for each in records_of(tmp_path)]
    assert statuses == ["ok" if comes_back else "error"] * 3
    assert len(waits) == (1 if comes_back else sender.RETRIES.tries - 1)


def test_large_files_go_alone(
    counts: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "BYTES", 2 * len(b"image"))
    assert len(records_of(tmp_path)) == 3
    assert counts == [2, 1]


def shown(body: str, *_: object) -> Response:
    return page(body)


def refused(*_: object) -> Response:
    raise ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("handler", "error", "text"),
    [
        (lambda *_: problem(401, "unauthorized"), WrongUsage, "it is unauthorized .401"),
        (lambda *_: problem(422, "invalid_parameter"), WrongUsage, "it is invalid_parameter"),
        (refused, EngineLost, "no server has answered image 0: ConnectionRefusedError: refused"),
        (lambda *_: problem(504, "timed_out"), EngineLost, "it is timed_out .504.*, 25 tries"),
        (
            lambda _, images: lines(
                *({"index": n, **(OK if n < images - 1 else LATE)} for n in range(images))
            ),
            EngineLost,
            "no server has answered image 2: late; the same command goes on",
        ),
    ],
    ids=["missing-key", "wrong-option", "no-answer", "late", "late-image"],
)
def test_an_answer_that_never_comes_ends_the_command(
    handler: Handler, error: type[Exception], text: str, serve: Serve, tmp_path: Path
) -> None:
    serve(handler)
    with pytest.raises(error, match=text):
        records_of(tmp_path)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (refused, "http://one cannot be reached: .*refused.*; `darkroom health http://one`"),
        *(
            (partial(shown, body), "what Darkroom answers")
            for body in ("<html>", '{"models": [{}]}')
        ),
    ],
    ids=["refused", "page", "other-json"],
)
def test_a_server_that_is_none_is_wrong_usage(
    answer: Handler, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, answer)
    with pytest.raises(WrongUsage, match=text):
        made()


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "http://localhost:abc", "http://", "http://a..b"],
    ids=["scheme", "port", "no-host", "empty-label"],
)
def test_a_url_that_is_none_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(WrongUsage, match=r"--server: .* is no URL, as http://localhost:8000"):
        start(Settings(), Classification({}), [url], 1)


@pytest.mark.parametrize("key", ["cl\xe9", "key\n"])
def test_a_key_that_no_header_can_hold_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DARKROOM_API_KEY", key)
    with pytest.raises(WrongUsage, match="DARKROOM_API_KEY: a key has printable ASCII") as caught:
        start(Settings(), Classification({}), ["http://one"], 1)
    assert key not in str(caught.value)


def test_a_temporary_folder_whose_name_is_too_long_for_a_socket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("x" * 120)).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 120)))
    with pytest.raises(WrongUsage, match="TMPDIR: no socket can be made at /"):
        start(Settings(), Classification({}), [], 1)


def test_a_connection_that_the_server_closes_is_opened_anew_with_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = list[str | None]()

    def closing(host: str, images: int) -> Response:
        answer = good(host, images) if images else Response(200, json.dumps(NETWORKS), {})
        return answer._replace(headers={"connection": "close"})

    def connected(server: SplitResult, _path: str | None) -> Connection:
        opened.append(server.hostname)
        return Connection(closing, str(server.hostname))

    monkeypatch.setattr(sender, "connected", connected)
    monkeypatch.setattr(sender, "BYTES", 1)
    assert [each["status"] for each in records_of(tmp_path)] == ["ok"] * 3
    assert len(opened) == 2 + 3


@pytest.mark.parametrize(
    ("url", "address"),
    [("http://[::1]", ("::1", 80)), ("https://[::1]/a", ("::1", 443)), ("http://a:9", ("a", 9))],
)
def test_the_end_of_an_ipv6_address_is_no_port(
    url: str, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    found = []

    def refuse(address: tuple[str, int], *_: object) -> None:
        found.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(ConnectionRefusedError):
        sender.connected(urlsplit(url), None)
    assert health.ask(url, 1)["state"] == "unreachable"
    assert found == [address] * 2


@pytest.mark.parametrize(
    ("server", "target", "credentials"),
    [
        ("http://one/before/", "/before/models", "Bearer secret"),
        ("http://a%40b:c%3Ad@one", "/models", "Basic YUBiOmM6ZA=="),  # a@b:c:d
    ],
)
def test_a_request_has_the_path_of_its_server_and_its_key(
    server: str, target: str, credentials: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []

    class Kept(Connection):
        def request(self, method: str, path: str, body: bytes | None, headers: Any) -> None:
            sent.append((path, headers["Authorization"]))
            super().request(method, "/models", body, headers)

    monkeypatch.setattr(sender, "connected", lambda *_: Kept(good, "one"))
    monkeypatch.setenv("DARKROOM_API_KEY", "secret")
    wire = sender.Wire([server], None)
    run(body_of(wire, Call("GET", "/models"), Attempts(sender.RETRIES), (200,)))
    assert sent == [(target, credentials)]


def test_an_error_page_without_end_is_not_read_to_its_end() -> None:
    endless = SimpleNamespace(status=500, headers={}, read=lambda most: b"x" * most)
    answer = sender.ServerAnswer(cast(HTTPResponse, endless))
    failed = run(refusal(answer, Attempts(sender.RETRIES)))
    assert "500" in str(failed.error)


def test_a_server_without_weights_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [
        {"models": [], "problem": "no file"},
        {"status": "not ready", "weights": {"status": "missing", "problem": "no file"}},
    ]
    answers = iter(told)
    connect(monkeypatch, lambda *_: Response(200, json.dumps(next(answers)), {}))
    with pytest.raises(WrongUsage, match="http://one has no network with weights: no file"):
        made()


class Own:
    """Server of the command that ends some time after its connections are lost."""

    path, connections = "/socket", 1

    def __init__(self, code: int, problem: str = "") -> None:
        self._ends = iter([None, None, (code, problem)])

    def end(self, patience: float) -> tuple[int, str] | None:
        """Return how it has ended, None at first."""
        assert not patience
        return next(self._ends)

    def kill(self) -> None:
        """Do nothing: it has ended."""


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
    connect(monkeypatch, refused)
    with pytest.raises(error, match=text):
        Engine(Classification({}), [], cast(PrivateServer, own), 1 << 20)


def test_a_pipe_and_an_open_descriptor_are_read_in_their_turn(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "photo").write_bytes(b"image")
    with (tmp_path / "photo").open() as opened:
        names = [str(tmp_path / "photo"), str(pipe), f"/dev/fd/{opened.fileno()}"]
        writer = threading.Thread(target=pipe.write_bytes, args=(b"image",))
        writer.start()
        tasks = tasks_of(Source(each, each) for each in names)
        records = [json.loads(each.line) for found in made().answers(tasks) for each in found]
        writer.join()
    assert [each["source"] for each in records] == names
    assert [each["status"] for each in records] == ["ok"] * 3


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a server that answers every image well."""
    monkeypatch.undo()
    with scripted(document(NETWORKS)) as server:
        yield server.url


def test_processes_send_images_in_order_and_their_end_is_an_error(
    listening: str, tmp_path: Path
) -> None:
    photos = [tmp_path / f"{number:03}.jpg" for number in range(50)]
    for each in photos:
        each.write_bytes(b"image")
    archive = tmp_path / "all.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(photos[0], "a.jpg")
    sources = Sources([*map(str, photos), str(archive), str(tmp_path / "missing.jpg")])
    made_of_two = Engine(Classification({}), [listening], None, 1 << 20, processes=2)
    with contextlib.closing(made_of_two.answers(tasks_of(iter(sources)))) as answers:
        found = [json.loads(each.line) for chunk in answers for each in chunk]
    assert [each["index"] for each in found] == [*range(52)]
    assert [each["source"] for each in found[:50]] == [*map(str, photos)]
    assert [each["status"] for each in found[50:]] == ["ok", "error"]
    for process in made_of_two._processes:
        process.kill()
    with pytest.raises(EngineLost, match="sends images has ended with exit code -9"):
        for _ in made_of_two.answers(tasks_of(iter(sources))):
            pass
    made_of_two.close()
