"""No command, worker, front end or decoder executes a file of the current folder."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pictures import png
from tests.server import PATIENCE, ran

ROOT = Path(__file__).parents[2]

TRAPS = (
    *("msgspec", "numpy", "json", "cv2", "PIL", "torch", "asyncio", "fastapi", "multipart", "uuid"),
    *("models", "workers", "simplejpeg", "pydantic", "prometheus_client", "uvloop", "httpx"),
)
"""Modules that Darkroom imports: its own, those of others and Python's own."""

FILTERS = ("filters", "invert")
CLASSIFY = ("classify", "a.png", "--weights", "random", "--precision", "fp32", "--gpus", "0")
FILTER = ("filter", "a.png", "--ops", '[{"name": "invert"}]', "-o", "out/", "--gpus", "0")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a checkout that is not installed be found from every folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """Return a folder full of traps; each that is executed leaves its name in the file `sprung`."""
    folder = tmp_path / "trapped"
    folder.mkdir()
    for name in TRAPS:
        note = f"open({str(tmp_path / 'sprung')!r}, 'a').write('{name} ')\n"
        (folder / f"{name}.py").write_text(note)
    (folder / "a.png").write_bytes(png())
    return folder


@pytest.fixture
def script(tmp_path: Path) -> tuple[str, ...]:
    """Return the console script of the environment, or what an installer would write."""
    installed = Path(sys.executable).with_name("darkroom")
    if installed.is_file() and installed.read_text().startswith(f"#!{sys.executable}"):
        return (str(installed),)
    written = tmp_path / "bin" / "darkroom"
    written.parent.mkdir()
    written.write_text("import sys\nfrom app.cli.script import main\nsys.exit(main())\n")
    return (sys.executable, str(written))


def sprung(folder: Path) -> str:
    """Return the traps that were executed."""
    note = folder.parent / "sprung"
    return note.read_text() if note.exists() else ""


def test_the_traps_work(trapped: Path) -> None:
    for command in ([sys.executable, "-c", "import numpy"], [sys.executable, "-m", "json"]):
        subprocess.run(command, cwd=trapped, capture_output=True, timeout=PATIENCE)
    assert sprung(trapped) == "numpy json "


@pytest.mark.parametrize(
    "commands", [(FILTERS, FILTER), pytest.param((CLASSIFY,), marks=pytest.mark.slow)]
)
def test_commands_spring_no_trap(
    trapped: Path, script: tuple[str, ...], commands: Sequence[Sequence[str]]
) -> None:
    for words in commands:
        ran(*script, *words, folder=trapped)
        assert sprung(trapped) == "", words
