"""Pages, docstrings and messages have no misspelling of codespell's list of words."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import ROOT

if importlib.util.find_spec("codespell_lib") is None:
    pytest.skip("codespell is not installed (requirements-docs.lock)", allow_module_level=True)


def misspelt(*paths: Path) -> str:
    """Return codespell's findings in files and in Python files of folders, one a line."""
    files = [path for each in paths for path in ([each] if each.is_file() else each.rglob("*.py"))]
    command = [sys.executable, "-m", "codespell_lib", *map(str, files)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def test_no_page_has_a_misspelling() -> None:
    assert not misspelt(*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))


def test_no_module_has_a_misspelling() -> None:
    assert not misspelt(*(ROOT / name for name in ("app", "models", "workers", "tools")))


def test_a_misspelling_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("The recieved image.\n")
    assert "received" in misspelt(tmp_path / "page.md")
