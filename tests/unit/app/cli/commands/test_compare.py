"""The figures of `darkroom compare`, and what it refuses."""

import json
from pathlib import Path

import pytest

from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.pictures import png


def test_a_chain_and_each_filter_are_timed_on_every_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(png())
    words = ["compare", str(tmp_path / "a.png"), "--ops", "rotate90,sobel", "--gpus", "0"]
    assert run([*words, "--images", "3", "--threads", "2", "--json"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert shown["gpu_left_out"] == "--gpus 0"
    devices = ["CPU, 1 thread", "CPU, 2 threads"]
    names = ["rotate90, sobel", "  rotate90", "  sobel"]
    measured = shown["measured"]
    pairs = [(each["device"], each["filters"]) for each in measured]
    assert pairs == [(device, name) for device in devices for name in names]
    assert all(each["milliseconds"] >= each["compute"] > 0 for each in measured)
    assert not any(each["different_samples"] for each in measured)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.png", "--op", "sepia"], "none.png: No such file"),
        ([__file__, "--op", "sepia"], "not an image"),
        (["a.png", "--op", "crop:left=9999"], "leave an image"),
        (["a.png", "--op", "sepia", "--images", "0"], "a number from 1 on"),
    ],
)
def test_what_cannot_be_compared_is_wrong_usage(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.png").write_bytes(png())
    monkeypatch.chdir(tmp_path)
    assert run(["compare", "--gpus", "0", *words]) == ExitCode.WRONG_USAGE
    assert message in capsys.readouterr().err
