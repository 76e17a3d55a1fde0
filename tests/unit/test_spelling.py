"""Pages, docstrings and messages have no misspelling of codespell's list of words."""

import subprocess
import sys

import pytest

from tests.documentation import ROOT

pytest.importorskip("codespell_lib", reason="codespell is not installed (requirements-docs.lock)")


def test_no_page_and_no_module_has_a_misspelling() -> None:
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    paths += [
        each
        for name in ("app", "models", "workers", "tools")
        for each in ROOT.glob(f"{name}/**/*.py")
    ]
    command = [sys.executable, "-m", "codespell_lib", *map(str, paths)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")
