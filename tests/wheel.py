"""Darkroom's wheel in an environment that has packages with the same names of its own."""

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

OTHERS = ("app", "models", "workers", "darkroom_client")
"""The packages of another program."""

PROGRAM = (
    sys.executable,
    "-c",
    "import sys; from darkroom.script import main; sys.exit(main())",
)
"""What the installed script `darkroom` runs."""


def installed(folder: Path) -> Path:
    """Build the wheel and unpack it beside the packages of another program; return the folder.

    An import of one of these other packages raises RuntimeError.
    """
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    for name in OTHERS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(f"raise RuntimeError('{name} of another program')")
    return site
