"""Completion in real shells: what a person who presses Tab is offered."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.server import PATIENCE

ASKED = [
    (("darkroom", "cl"), ["classify"]),
    (("darkroom", "filter", "--for"), ["--force", "--format"]),
    (("darkroom", "filter", "--op", "gau"), ["gaussian_blur"]),
    (("darkroom", "filter", "--format", "w"), ["webp"]),
    (("darkroom", "filters", "sob"), ["sobel"]),
    (("darkroom", "classify", "--networks", "resnet"), ["resnet18", "resnet34", "resnet50"]),
    (("darkroom", "serve", "--log-f"), ["--log-format"]),
]


def script(shell: str, folder: Path) -> Path:
    """Write the completion script of a shell, as a user does."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = [sys.executable, "-m", "app.cli", "completion", shell]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")
    path = folder / f"_darkroom.{shell}"
    path.write_bytes(done.stdout)
    return path


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return script("bash", tmp_path_factory.mktemp("bash"))


@pytest.fixture(scope="module")
def fish(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return script("fish", tmp_path_factory.mktemp("fish"))


def answered(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("words", "expected"), ASKED, ids=" ".join)
def test_bash_offers_names(words: tuple[str, ...], expected: list[str], bash: Path) -> None:
    code = f"""
        source {shlex.quote(str(bash))}
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        function=$(complete -p darkroom | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        "$function"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert sorted({*answered("bash", "--norc", "-c", code).split()}) == expected


@pytest.mark.parametrize(("words", "expected"), ASKED, ids=" ".join)
def test_fish_offers_names(words: tuple[str, ...], expected: list[str], fish: Path) -> None:
    asking = f"source {shlex.quote(str(fish))}; complete -C {shlex.quote(' '.join(words))}"
    lines = answered("fish", "--no-config", "-c", asking).splitlines()
    assert sorted({line.split("\t")[0] for line in lines}) == expected


def typed(shell: list[str], setup: str, keys: str, expected: str) -> None:
    """Type into an interactive shell on a terminal until it shows what is expected."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PS1": "$ ", "HOME": "/nonexistent"}
    process = subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        os.write(ours, f"{setup}; echo se''tup\n".encode())
        _shown(ours, "setup")
        os.write(ours, keys.encode())
        _shown(ours, expected)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _shown(terminal: int, expected: str) -> None:
    seen, end = "", time.monotonic() + PATIENCE
    while expected not in seen:
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], seen
        seen += os.read(terminal, 65536).decode(errors="replace")


def test_zsh_completes_the_name_of_a_filter(tmp_path: Path) -> None:
    script("zsh", tmp_path).rename(tmp_path / "_darkroom")
    setup = f"fpath=({shlex.quote(str(tmp_path))} $fpath); autoload -U compinit; compinit -u -D"
    typed(["zsh", "-f", "-i"], setup, "darkroom filter --op gaus\t", "gaussian_blur")


def test_bash_completes_a_command_on_a_terminal(bash: Path) -> None:
    setup = f"source {shlex.quote(str(bash))}"
    typed(["bash", "--norc", "-i"], setup, "darkroom class\t", "classify")
