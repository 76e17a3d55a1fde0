"""`python -m app.…` imports its own packages from the checkout, and nothing else from there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server import PATIENCE

ROOT = Path(__file__).parents[3]

PROBE = """
import json, sys
import models, workers
print(json.dumps({"models": models.__file__, "workers": workers.__file__, "path": sys.path}))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a trap beside its packages."""
    for name in ("app", "models", "workers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "app" / "__init__.py").write_text((ROOT / "app" / "__init__.py").read_text())
    (tmp_path / "app" / "probe.py").write_text(PROBE)
    (tmp_path / "json.py").write_text("raise SystemExit('the trap was executed')")
    return tmp_path


@pytest.mark.parametrize("installed", ["", str(ROOT)])
def test_all_packages_are_those_of_one_checkout_and_no_trap_is_executed(
    checkout: Path, installed: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": installed}
    if not installed:
        del environment["PYTHONPATH"]
    command = [sys.executable, "-m", "app.probe"]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["models"] == str(checkout / "models" / "__init__.py")
    assert found["workers"] == str(checkout / "workers" / "__init__.py")
    assert str(checkout) not in found["path"]


def test_python_with_a_safe_path_is_left_alone(checkout: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    code = "import sys; before = list(sys.path); import app; assert sys.path == before, sys.path"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=checkout, env=environment, timeout=PATIENCE)
    assert done.returncode == 0
