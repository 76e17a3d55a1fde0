"""The version of Darkroom, for answers, metrics, `User-Agent` and `--version`."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

UNKNOWN = "0+unknown"
"""Where neither a distribution nor a checkout says which version this is."""


def _version(checkout: Path = Path(__file__).parents[1]) -> str:
    """Read the installed distribution, else the checkout's pyproject.toml."""
    try:
        return version("darkroom-server")
    except PackageNotFoundError:
        pass
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
    except (OSError, KeyError, ValueError):
        return UNKNOWN


VERSION = _version()
