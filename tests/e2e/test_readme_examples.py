"""The commands that the README shows work as they are written there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.e2e.conftest import Running
from tests.server import PATIENCE

README = (Path(__file__).parents[2] / "README.md").read_text()

EXAMPLES = README[: README.index("## GPUs and several processes")]
"""The part that needs no keys, and no weights of the reader's own."""

FOREIGN = "https://www.python.org/static/img/python-logo.png"
"""A URL of the README; tests use an address that is refused without a look at the network."""

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def commands() -> list[str]:
    """Return the curl commands for a server with default settings, each with all of its lines."""
    blocks = re.findall(r"```console\n(.*?)```", EXAMPLES, re.DOTALL)
    pattern = re.compile(
        r"^\$ (curl (?:[^\n]*\\\n)*[^\n]*<<(\w+)\n.*?\n\2|curl (?:[^\n]*\\\n)*[^\n]*)",
        re.MULTILINE | re.DOTALL,
    )
    usual = [block for block in blocks if "darkroom serve &" not in block]
    return [match.group(1) for block in usual for match in pattern.finditer(block)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the pictures that the README has the reader make."""
    folder = tmp_path_factory.mktemp("readme")
    command = [sys.executable, "-m", "tests.drawn_classes", str(folder)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    (folder / "broken.jpg").write_text("this is no image\n")
    return folder


def ran(command: str, folder: Path, port: int) -> str:
    """Run one command of the README against this port and return its output."""
    here = command.replace("localhost:8000", f"127.0.0.1:{port}")
    here = here.replace(FOREIGN, "http://169.254.169.254/")
    done = subprocess.run(["bash", "-c", here], cwd=folder, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_the_readme_shows_every_kind_of_request() -> None:
    shown = " ".join(commands())
    assert all(route in shown for route in ("/classify", "/filter", "/process"))
    assert len(commands()) >= 7


@pytest.mark.parametrize("command", commands(), ids=lambda each: each[:60])
def test_a_command_of_the_readme_succeeds(command: str, pictures: Path, server: Running) -> None:
    printed = ran(command, pictures, server.port)
    if "-o filtered.zip" in command:
        with ZipFile(pictures / "filtered.zip") as archive:
            assert [name for name in archive.namelist() if name.endswith(".webp")]
    elif "-D -" in command:
        assert printed.startswith("HTTP/1.1 200")
    elif "169.254" in command:
        assert json.loads(printed)["code"] == "address_refused"
    else:
        records = [json.loads(line) for line in printed.splitlines() if line]
        results = records[0].get("results", records)
        assert "ok" in {each["status"] for each in results}
