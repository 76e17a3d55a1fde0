"""What each command imports, read from `sys.modules` of a process of its own."""

import sys
from pathlib import Path

import pytest

from tests.pictures import png
from tests.server import ran

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
    done = ran(sys.executable, "-c", code, folder=ROOT)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--version"], NETWORKS | SERVING | PIXELS),
        (["--help"], NETWORKS | SERVING | PIXELS),
        (["health", "--help"], NETWORKS | SERVING | PIXELS),
        (["serve", "--help"], NETWORKS | SERVING),
        (["filters"], NETWORKS | SERVING),
        (["classify", "--help"], NETWORKS | {"fastapi"}),
        (["duplicates", "--help"], NETWORKS | {"fastapi"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_a_command_imports_no_more_than_it_needs(words: list[str], without: set[str]) -> None:
    assert not imported(*words) & without


def test_filtering_on_a_cpu_imports_no_library_of_networks(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    ops, target = '[{"name": "invert"}]', tmp_path / "made.png"
    found = imported(
        "filter", str(tmp_path / "a.png"), "--ops", ops, "-o", str(target), "--gpus", "0"
    )
    assert target.is_file()
    assert not found & (NETWORKS | {"fastapi"})
