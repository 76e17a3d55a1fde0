"""What `darkroom serve` refuses before it loads a network."""

import socket
from pathlib import Path

import pytest

from app import main
from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.ports import free_port


@pytest.mark.parametrize(
    ("flag", "file", "message"),
    [
        ("--api-keys-file", "none", "none cannot be read: No such file or directory"),
        ("--api-keys-file", "file", "file has no API key; add one"),
        ("--data-folder", "file", "file cannot be written: File exists"),
    ],
)
def test_files_that_cannot_be_used_are_wrong_usage_before_anything_is_loaded(
    flag: str,
    file: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(main, "create_app", lambda _: pytest.fail("the server is being built"))
    words = ["serve", "--port", str(free_port()), "--front-ends", "0", flag, str(tmp_path / file)]
    assert run(words) == ExitCode.WRONG_USAGE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_port_that_is_in_use_is_named(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["serve", "--front-ends", "0", "--port", "0", flag, port]
        assert run(words) == ExitCode.CANNOT_LISTEN
    shown = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in shown
    assert shown.count("\n") == 1
