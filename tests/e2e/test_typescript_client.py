"""The TypeScript client compiles with the server's types, and works in Node and Chromium."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.documentation import blocks
from tests.drawn_classes import DRAWN
from tests.e2e.conftest import Running, Start
from tests.pictures import encoded
from tests.ports import free_port
from tests.server import PATIENCE
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
    done = subprocess.run(
        [program, *arguments],
        cwd=FOLDER,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def page_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(
    start: Start, page_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    origin, folder = f"http://127.0.0.1:{page_port}", tmp_path_factory.mktemp("jobs")
    with start(weights="bundled", cors_origins=origin, data_folder=folder) as running:
        yield running


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for label, draw in DRAWN.items():
        (folder / f"{label.replace(' ', '_')}.jpg").write_bytes(encoded(draw(), quality=92))
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


def test_the_client_works_in_node(built: Path, server: Running, photos: Path) -> None:
    assert (built / "index.js").is_file()
    printed = tool(
        "node",
        *("--test", "--test-reporter=tap", "tests/"),
        DARKROOM_URL=f"http://127.0.0.1:{server.port}",
        DARKROOM_PHOTOS=str(photos),
    )
    assert "# SKIP" not in printed
    assert "# fail 0" in printed


def test_the_example_of_the_documentation_works(
    built: Path, server: Running, photos: Path, tmp_path: Path
) -> None:
    (example,) = (each for each in blocks(PAGE.read_text()) if each.language == "ts")
    program = built / "example.mjs"  # a file of the package finds the package by its name
    program.write_text(example.text.replace("localhost:8000", f"127.0.0.1:{server.port}"))
    shutil.copy(photos / "golf_ball.jpg", tmp_path / "photo.jpg")
    done = subprocess.run(
        ["node", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "golf ball"
    assert second.endswith(" bytes")


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serve the client's folder and a photo, and keep what a page posts to /found."""

    def __init__(self, *arguments: Any, photo: Path, found: "Queue[Any]", **named: Any) -> None:
        self._photo = photo
        self._found = found
        super().__init__(*arguments, **named)

    def translate_path(self, path: str) -> str:
        return str(self._photo) if path == "/photo.jpg" else super().translate_path(path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self._found.put(json.loads(body))

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


@contextmanager
def pages(port: int, photo: Path) -> Iterator["Queue[Any]"]:
    """Serve pages on a port, and yield the queue of what they post."""
    found: Queue[Any] = Queue()
    handler = functools.partial(Pages, directory=str(FOLDER), photo=photo, found=found)
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.05,))
        thread.start()
        yield found
        started.shutdown()
        thread.join()


@contextmanager
def chromium(url: str, profile: Path) -> Iterator[None]:
    """Open a page in the system's Chromium, without a window and with a profile of its own."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed (on Debian: apt-get install chromium)")
    flags = ["--headless=new", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}"]
    flags += ["--no-sandbox", "--disable-dev-shm-usage"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [program, *flags, "--remote-debugging-port=0", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_the_client_works_in_chromium_from_another_origin(
    built: Path, server: Running, photos: Path, page_port: int, tmp_path: Path
) -> None:
    assert (built / "index.js").is_file()
    url = f"http://127.0.0.1:{page_port}/tests/browser.html?server=http://127.0.0.1:{server.port}"
    with pages(page_port, photos / "golf_ball.jpg") as found, chromium(url, tmp_path):
        seen = found.get(timeout=PATIENCE)
    assert seen == {
        "labels": ["golf ball", "golf ball"],
        "filters": 47,
        "job": "golf ball",
        "size": seen.get("size"),
        "bad": "unsupported_media",
        "refused": "invalid_parameter",
    }
    assert len(seen["size"]) == 2
