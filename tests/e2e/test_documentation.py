"""The examples of the README and of docs/ work as they are written there, page by page."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documentation import PAGES, ROOT, blocks, outputs, script
from tests.e2e.conftest import Running, Start, origin
from tests.ports import free_port
from tests.server import PATIENCE, until
from tests.shown import differences

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

PORT = re.compile(r"(\blocalhost:|\b127\.0\.0\.1:|--port[ =]|PORT=)(80\d\d)\b")
"""A port of a page: 8000 is the server of the tests, others are servers that the page starts."""

ADDRESS = re.compile(r"https?://(?!localhost|127\.|169\.254\.)[\w.-]+(:\d+)?")
"""The beginning of any other URL: the tests have an origin for all of them, and no network."""

LONG = "api bulk clients command-line operations step-by-step troubleshooting your-own-network"
"""Pages that start many servers and commands."""

WITH_EXAMPLES = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.stem in LONG.split()), id=page.stem)
    for page in PAGES
    if any(b.runs for b in blocks(page.read_text()))
]


@pytest.fixture(scope="module")
def documented(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with start(
        weights="bundled",
        decoders="auto",
        fetch_allowed_networks="127.0.0.0/8",
        fetch_ports="1-65535",
        data_folder=tmp_path_factory.mktemp("jobs"),
    ) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, photos: Path) -> Path:
    """Return a folder with the pictures that the pages speak of."""
    shutil.copytree(photos, tmp_path / "photos")
    shutil.copy(photos / "golf_ball.jpg", tmp_path / "photo.jpg")
    shutil.copy(photos / "church.jpg", tmp_path / "photo2.jpg")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def here(text: str, port: int, pictures: str) -> str:
    """Return a text of a page with the ports of the tests, and with URLs of the origin."""
    ports = {number: free_port() for _, number in PORT.findall(text)} | {"8000": port}
    text = PORT.sub(lambda match: f"{match[1]}{ports[match[2]]}", text)
    return ADDRESS.sub(pictures, text)


def environment(printed: Path) -> dict[str, str]:
    """Return the variables of the shell; curl fails there when the server answers an error."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DARKROOM_")}
    (printed / "rc").mkdir()
    (printed / "rc/.curlrc").write_text("fail\nsilent\nshow-error\n")
    return inherited | {
        "DARKROOM_GRACE": "0",  # servers of a page end without waiting for load balancers
        "DARKROOM_PRECISION": "fp32",  # to measure which one is faster takes half of a start
        "DARKROOM_WEIGHTS": "bundled",  # without a look at the network
        "FAILING": str(printed / "rc"),
        "HOME": str(printed),
        "PATH": f"{sys.prefix}/bin{os.pathsep}{inherited['PATH']}",
        "PRINTED": str(printed),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "clients/python/src"), inherited.get("PYTHONPATH", "")]
        ),
        "PYTHONWARNINGS": "",
        "XDG_CACHE_HOME": str(printed),
    }


def run(text: str, folder: Path, printed: Path) -> None:
    """Run a script in a process group of its own, and end what it left running."""
    (printed / "script").write_text(text)
    process = subprocess.Popen(
        ["bash", str(printed / "script")],
        cwd=folder,
        env=environment(printed),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        code = process.wait(PATIENCE)
    finally:
        end(process.pid)
    if code:
        failed = printed / "failed"
        errors = sorted(printed.glob("*.err"), key=lambda path: path.stat().st_mtime_ns)
        said = [failed.read_text()] if failed.exists() else []
        said += [errors[-1].read_text(), errors[-1].with_suffix("").read_text()] if errors else []
        pytest.fail("\n".join([f"exit code {code}", *said]), pytrace=False)


def end(group: int) -> None:
    """End a process group: servers that a page started and did not stop."""

    def ended() -> bool:
        try:
            os.killpg(group, signal.SIGTERM)
        except ProcessLookupError:
            return True
        return False

    until(ended)


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_work_as_they_are_shown(
    page: Path, documented: Running, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if page.stem == "your-own-network":
        pytest.importorskip("timm")
    printed = tmp_path_factory.mktemp("printed")
    node = shutil.which("node")
    photo = (folder / "photo.jpg").read_bytes()
    with origin(lambda _path, _body: (200, photo), **{"Content-Type": "image/jpeg"}) as pictures:
        text = here(page.read_text(), documented.port, pictures)
        run(script(text, javascript=bool(node)), folder, printed)
    for example, shown in outputs(text):
        if example.language == "js" and not node:
            continue
        out, err = (printed / f"{example.first}{end}" for end in ("", ".err"))
        output = out.read_text() + ("" if shown.language == "json" else err.read_text())
        wrong = differences(shown.language, shown.text, output)
        assert not wrong, "\n".join([f"{page.name}, line {shown.first + 1}", *wrong, output])
    programs = sum(block.runs and block.language == "js" for block in blocks(text))
    if programs and not node:
        pytest.skip(
            f"all other examples of {page.name} passed; {programs} in JavaScript were not run, "
            "because Node is not installed"
        )
