"""What each command imports, read from `sys.modules` of a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pictures import png
from tests.server import PATIENCE

ROOT = Path(__file__).parents[5]

NETWORKS = {"torch", "torchvision", "cupy"}
"""Libraries of networks, which take one second and more each."""

SERVING = {"fastapi", "uvicorn", "httpx"}
PIXELS = {"numpy", "cv2", "PIL", "pydantic"}


def imported(*arguments: str) -> set[str]:
    """Return the modules that are imported when the command has ended."""
    code = f"""
import sys
from app.cli.script import main
try:
    code = main({list(arguments)!r})
except SystemExit as end:
    code = end.code or 0
assert code == 0, code
sys.stdout.flush()
print(*sys.modules, file=sys.stderr)
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_nothing_but_the_command_line(flag: str) -> None:
    assert not imported(flag) & (NETWORKS | SERVING | PIXELS)


def test_the_health_check_imports_nothing_but_the_command_line() -> None:
    found = imported("health", "--help")
    assert "app.cli.commands.health" in found
    assert not found & (NETWORKS | SERVING | PIXELS)


def test_help_of_serve_imports_neither_networks_nor_the_server() -> None:
    assert not imported("serve", "--help") & (NETWORKS | SERVING)


def test_the_list_of_filters_imports_neither_networks_nor_the_server() -> None:
    assert not imported("filters") & (NETWORKS | SERVING)


def test_filtering_on_a_cpu_imports_no_library_of_networks(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    ops, target = '[{"name": "invert"}]', tmp_path / "made.png"
    found = imported(
        "filter", str(tmp_path / "a.png"), "--ops", ops, "-o", str(target), "--gpus", "0"
    )
    assert target.is_file()
    assert not found & NETWORKS
