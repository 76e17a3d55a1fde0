"""Every command of the command line: its exit code, its output and the files it writes."""

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.golden import plain
from tests.golden.drawn import Drawn

COMMANDS = (
    ["--help"],
    ["--version"],
    ["serve", "--help"],
    ["classify", "--help"],
    ["filter", "--help"],
    ["weights", "--help"],
    ["filters"],
    ["filters", "canny"],
    ["filters", "nothing"],
    ["weights", "list"],
    ["weights", "verify", "bundled"],
    ["nothing"],
    ["serve", "--port", "none"],
    ["classify", "--top-k", "2", "00.jpeg", "01.png", "missing.jpg", "broken.jpg"],
    ["classify", "--top-k", "0", "00.jpeg"],
    ["filter", "00.jpeg", "03.png", "broken.jpg", "--ops", '[{"name": "sobel"}]', "-o", "out"],
    ["filter", "02.jpeg", "--ops", '[{"name": "sepia"}]', "--format", "webp", "-o", "one.webp"],
    ["filter", "02.jpeg", "--ops", '[{"name": "sepia"}]', "-o", "02.jpeg"],
    ["filter", "02.jpeg", "--ops", "[", "-o", "x.png"],
    ["filter", "02.jpeg", "--ops", '[{"name": "no"}]', "-o", "x.png"],
)

SETTINGS = {
    "DARKROOM_WEIGHTS": "bundled",
    "DARKROOM_MAX_BATCH_SIZE": "1",
    "DARKROOM_THREADS": "1",
    "DARKROOM_PRECISION": "fp32",
    "COLUMNS": "100",
}
"""One thread, one image at a time and a fixed precision, so that sums of floats are the same."""


def commands(images: list[Drawn]) -> dict[str, Any]:
    """Run every command in a folder of its own, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda words: _run(words, images), COMMANDS)
        return {
            "darkroom " + " ".join(words): each for words, each in zip(COMMANDS, found, strict=True)
        }


def _run(words: list[str], images: list[Drawn]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "out").mkdir()
        (folder / "broken.jpg").write_bytes(b"no image")
        for each in images[:4]:
            (folder / each.name).write_bytes(each.data)
        before = {path for path in folder.rglob("*") if path.is_file()}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
        environment = (
            kept | SETTINGS | {"PYTHONPATH": os.getcwd(), "XDG_CACHE_HOME": str(folder / "cache")}
        )
        command = [sys.executable, "-m", "app.cli", *words]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
        )
        written = {path for path in folder.rglob("*") if path.is_file()} - before
        return {
            "exit code": done.returncode,
            "output": _lines(done.stdout, folder),
            "errors": _lines(done.stderr, folder),
            "files": {
                str(path.relative_to(folder)): plain.digest(path.read_bytes())
                for path in sorted(written)
            },
        }


def _lines(data: bytes, folder: Path) -> list[Any]:
    """Return each line: JSON without changing values, or its text without this machine's paths."""
    text = data.decode(errors="replace").replace(str(folder), "FOLDER").replace(os.getcwd(), "HERE")
    found: list[Any] = []
    for line in text.splitlines():
        try:
            found.append(plain.without_changing(json.loads(line)))
        except ValueError:
            found.append(re.sub(r"/\S*/(?=models/)", "", line))
    return found
