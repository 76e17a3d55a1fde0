"""`darkroom health` against a server that answers what the test says."""

import json

import pytest

from app.cli.commands.health import table
from app.cli.parser import run
from clients.python.tests.scripted import scripted, sends
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
    "worker": {"alive": False, "degraded": "GPU 0 cannot be used"},
    "weights": {"status": "missing", "problem": "no file"},
}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def asked(status: int, body: bytes, *flags: str) -> int:
    with scripted(sends(body, status=status)) as server:
        code = run(["health", server.url, *flags])
        assert [each.path for each in server.requests] == ["/readyz?verbose"]
    return code


@pytest.mark.parametrize(
    ("status", "body", "code", "words"),
    [
        (200, json.dumps(READY), ExitCode.OK, " is ready\n"),
        (503, json.dumps(LOST), ExitCode.FAILED, " is not ready\n  the server is stopping\n  no w"),
        (503, '{"status": "\\ud800"}', ExitCode.FAILED, " is \\ud800\n"),
        (200, "<html>", ExitCode.FAILED, "what answers there is no Darkroom server"),
        (200, "[1]", ExitCode.FAILED, "what answers there is no Darkroom server"),
        (404, '{"status": 404}', ExitCode.FAILED, "no /readyz; give the URL without a path"),
        (503, '{"worker": [1], "canary": "x", "weights": 1}', ExitCode.FAILED, " is not ready\n"),
        (503, "[" * 200_000, ExitCode.FAILED, "what answers there is no Darkroom server"),
    ],
    ids=["ready", "lost", "surrogate", "page", "list", "path", "strange", "deep"],
)
def test_an_answer_is_told_in_words(
    status: int,
    body: str,
    code: ExitCode,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert asked(status, body.encode()) == code
    assert words in capsys.readouterr().out


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(200, json.dumps(READY).encode(), "--json") == ExitCode.OK
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["ready"], found["state"], found["details"]) == (True, "ok", READY)


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


def test_an_answer_cannot_steer_the_terminal() -> None:
    every = "".join(map(chr, (*range(32), *range(127, 160))))
    found = {"url": "u", "ready": False, "state": every, "reasons": [every]}
    shown = table(found, colours=False)
    assert [each for each in shown if each in every] == ["\n"] * 2
    assert "\\x1b" in shown
    coloured = table(found, colours=True).replace("\x1b[31m", "")
    assert coloured.replace("\x1b[0m", "") == shown
