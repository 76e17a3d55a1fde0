"""Completion in a real shell: what a person who presses Tab is offered."""

import shlex
import shutil
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from app.cli.parser import run
from models.exit_codes import ExitCode
from tests.server import ran

ASKED = {
    "darkroom cl": ["classify"],
    "darkroom filter --for": ["--force", "--format"],
    "darkroom filter --op gau": ["gaussian_blur"],
    "darkroom filter --format w": ["webp"],
    "darkroom filters sob": ["sobel"],
    "darkroom classify --networks resnet": ["resnet18", "resnet34", "resnet50"],
    "darkroom serve --log-f": ["--log-format"],
}


def answered(*command: str) -> str:
    done = ran(*command)
    assert done.stderr == ""
    return done.stdout


def script(shell: str) -> str:
    with redirect_stdout(TextIOWrapper(BytesIO())) as written:
        assert run(["completion", shell]) == ExitCode.OK
        written.seek(0)
        return written.read()


def test_bash_offers_names(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script("bash"))
    code = f"source {shlex.quote(str(tmp_path / 'script'))}\n"
    for words in map(str.split, ASKED):
        code += f"""
            COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1} COMPREPLY=()
            $(complete -p darkroom | sed 's/.*-F \\([^ ]*\\).*/\\1/')
            echo "${{COMPREPLY[@]}}"
        """
    lines = answered("bash", "--norc", "-c", code).splitlines()
    assert [sorted({*line.split()}) for line in lines] == [*ASKED.values()]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_scripts(shell: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script(shell))
    assert "gaussian_blur" in (tmp_path / "script").read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    answered(shell, "--no-execute", str(tmp_path / "script"))
