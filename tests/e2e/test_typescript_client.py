"""The TypeScript client compiles with the server's types, and works in Node."""

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documentation import blocks
from tests.e2e.conftest import Running, Start
from tests.server import ran
from tools.openapi_document import document

FOLDER = Path(__file__).parents[2] / "clients/typescript"
PAGE = FOLDER.parents[1] / "docs/clients.md"
MODULES = FOLDER / "node_modules"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed"),
    pytest.mark.skipif(
        not (MODULES / ".bin/tsc").exists(), reason="run `make clients` to install Node's modules"
    ),
]


def tool(name: str, *arguments: str | Path, **environment: str) -> str:
    """Run an installed program of Node's modules, or Node itself; return what it printed."""
    program = name if name == "node" else MODULES / ".bin" / name
    return ran(program, *arguments, folder=FOLDER, environment=environment).stdout


@pytest.fixture(scope="module")
def server(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with start(weights="bundled", data_folder=tmp_path_factory.mktemp("jobs")) as running:
        yield running


@pytest.fixture(scope="module")
def pictures(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with photos, and an archive of two."""
    folder = tmp_path_factory.mktemp("pictures")
    shutil.copytree(photos, folder, dirs_exist_ok=True)
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        for name in ("church.jpg", "golf_ball.jpg"):
            archive.write(folder / name, name)
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the client, compiled with the types of this server's document."""
    described = tmp_path_factory.mktemp("openapi") / "openapi.json"
    described.write_text(document())
    tool("openapi-typescript", described, "--output", "src/schema.ts")
    tool("tsc")
    return FOLDER / "dist"


def test_the_client_works_in_node(built: Path, server: Running, pictures: Path) -> None:
    assert (built / "index.js").is_file()
    printed = tool(
        "node",
        *("--test", "--test-reporter=tap", "tests/"),
        DARKROOM_URL=f"http://127.0.0.1:{server.port}",
        DARKROOM_PHOTOS=str(pictures),
    )
    assert "# SKIP" not in printed
    assert "# fail 0" in printed


def test_the_example_of_the_documentation_works(
    built: Path, server: Running, pictures: Path, tmp_path: Path
) -> None:
    (example,) = (each for each in blocks(PAGE.read_text()) if each.language == "ts")
    program = built / "example.mjs"  # a file of the package finds the package by its name
    program.write_text(example.text.replace("localhost:8000", f"127.0.0.1:{server.port}"))
    shutil.copy(pictures / "golf_ball.jpg", tmp_path / "photo.jpg")
    done = ran("node", program, folder=tmp_path)
    first, second = done.stdout.splitlines()
    assert first == "golf ball"
    assert second.endswith(" bytes")
