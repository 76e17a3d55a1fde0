"""The version is known where Darkroom is installed, and where it runs from a checkout."""

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from models import version
from models.version import VERSION

ROOT = Path(__file__).parents[3]


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
