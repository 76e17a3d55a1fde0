"""The version is known where Darkroom is installed, and where it runs from a checkout."""

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from models import version
from models.version import UNKNOWN, VERSION
from tests.server import PATIENCE

ROOT = Path(__file__).parents[3]

WITHOUT_A_DISTRIBUTION = """
import importlib.metadata

def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

found = importlib.metadata.version
importlib.metadata.version = lambda name: missing(name) if name == "darkroom" else found(name)
"""


def not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_a_checkout_that_is_not_installed_knows_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(version, "version", not_installed)
    assert version._version() == VERSION


def test_a_copy_that_is_neither_installed_nor_a_checkout_has_an_unknown_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(version, "version", not_installed)
    assert version._version(tmp_path) == UNKNOWN
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'another'\n")
    assert version._version(tmp_path) == UNKNOWN


def test_a_missing_distribution_stops_neither_the_application_nor_user_agent_nor_metrics() -> None:
    code = """
from app.fetch import fetcher as origins
from app.main import create_app
from app.telemetry.metrics import Metrics
from models.settings import Settings
print(create_app(Settings()).version, origins._HEADERS["User-Agent"])
"""
    command = [sys.executable, "-c", WITHOUT_A_DISTRIBUTION + code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    assert done.stdout.split() == [VERSION, f"darkroom/{VERSION}"]
