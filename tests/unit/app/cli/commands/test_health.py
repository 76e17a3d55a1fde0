"""`darkroom health` against a server that answers what the test says."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.cli.commands.health import reasons, table
from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.ports import free_port

READY = {
    "status": "ok",
    "stopping": False,
    "canary": {"ready": True, "seconds_ago": 0.1, "problem": None},
    "worker": {"alive": True, "device": "cpu", "degraded": None, "queued_images": 0},
    "weights": {"name": "bundled"},
}
LOST = {
    "status": "not ready",
    "stopping": True,
    "canary": {"ready": False, "problem": "no canary has passed"},
    "worker": {"alive": False, "expected_in": 2.5, "degraded": "GPU 0 cannot be used"},
    "weights": {"status": "missing", "problem": "no file"},
}


class Server(ThreadingHTTPServer):
    """A server that answers every request with the same status and body."""

    answer = (200, b"")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        status, body = self.server.answer
        assert self.path.endswith("/readyz?verbose")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def asked(server: Server, status: int, body: bytes, *flags: str) -> int:
    server.answer = (status, body)
    return run(["health", f"http://127.0.0.1:{server.server_address[1]}", *flags])


def test_a_ready_server_is_shown_in_a_table(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(server, 200, json.dumps(READY).encode()) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(" is ready")
    assert "  worker    alive yes, device cpu, degraded -, queued_images 0" in lines


def test_a_server_that_is_not_ready_gives_its_reasons(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(server, 503, json.dumps(LOST).encode()) == ExitCode.FAILED
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(" is not ready")
    assert "  no worker is running; one is expected in 2.5 s" in lines


def test_json_is_one_line(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(server, 200, json.dumps(READY).encode(), "--json") == ExitCode.OK
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["ready"], found["state"], found["details"]) == (True, "ok", READY)


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff\xfe"])
def test_another_program_is_not_ready(
    server: Server, body: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(server, 200, body) == ExitCode.FAILED
    assert "what answers there is no Darkroom server" in capsys.readouterr().out


def test_a_url_with_a_path_is_told_to_have_none(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = (404, json.dumps({"status": 404, "code": "not_found"}).encode())
    assert run(["health", f"http://127.0.0.1:{server.server_port}/classify"]) == ExitCode.FAILED
    told = capsys.readouterr().out
    assert "there is no /classify/readyz; give the URL without a path" in told


def test_a_port_where_nothing_listens_is_unreachable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DARKROOM_PORT", str(free_port()))
    assert run(["health"]) == ExitCode.FAILED
    assert "no answer: Connection refused; nothing listens there" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["localhost:8000"], ["ftp://a"], ["http://a:x"], ["http://a", "--timeout", "0"]]
)
def test_wrong_usage_is_told_apart_from_a_server_that_is_not_ready(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["health", *words]) == ExitCode.WRONG_USAGE
    assert capsys.readouterr().out == ""


def test_every_reason_is_listed() -> None:
    assert reasons(LOST) == [
        "the server is stopping",
        "no worker is running; one is expected in 2.5 s",
        "canary: no canary has passed",
        "degraded: GPU 0 cannot be used",
        "weights: no file",
    ]


def test_an_answer_cannot_steer_the_terminal() -> None:
    every = "".join(map(chr, (*range(32), *range(127, 160))))
    details = {"worker": {"device": every, every: 1}}
    found = {"url": "u", "ready": False, "state": every, "reasons": [every], "details": details}
    shown = table(found, colours=False)
    assert [each for each in shown if each in every] == ["\n"] * 3
    assert "\\x1b" in shown
    coloured = table(found, colours=True).replace("\x1b[31m", "").replace("\x1b[2m", "")
    assert coloured.replace("\x1b[0m", "") == shown


def test_an_answer_with_lone_surrogates_is_shown_escaped(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(server, 503, b'{"status": "\\ud800"}') == ExitCode.FAILED
    assert capsys.readouterr().out.endswith(" is \\ud800\n")


@pytest.mark.parametrize("body", [b'{"worker": [1], "canary": "x", "weights": 1}', b"[" * 200_000])
def test_a_strange_answer_is_not_ready(server: Server, body: bytes) -> None:
    assert asked(server, 503, body) == ExitCode.FAILED
