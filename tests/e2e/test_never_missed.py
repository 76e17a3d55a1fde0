"""A server of several processes whose workers die, and one whose processes are replaced."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.pictures import jpeg
from tests.server import PATIENCE, Served, children, get, gone, post, serving, until

FLAGS = (
    *("--front-ends", "2", "--weights", "bundled", "--precision", "fp32"),
    *("--grace", "1000"),  # no test may end because it is over
    *("--default-deadline", "100"),  # a busy machine may take long to start a worker
)
RAW = {"Content-Type": "image/jpeg"}


def url(server: Served, path: str) -> str:
    return f"http://127.0.0.1:{server.port}{path}"


def ready(server: Served) -> bool:
    return get(url(server, "/readyz")).status_code == 200


def alive(server: Served) -> bool:
    """Return whether the front end that answers has a worker; without one it must not be ready.

    Each front end notices by itself that a worker died or came, so one answer must show it all.
    """
    reply = get(url(server, "/readyz?verbose"))
    shown = reply.json()
    found: bool = shown["worker"]["alive"]
    if not found:
        assert (reply.status_code, shown["status"]) == (503, "not ready")
        assert shown["canary"]["problem"].startswith("no worker is running")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the server's settings and its log."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def tree(folder: Path) -> Iterator[tuple[Served, Path]]:
    file = folder / "darkroom.env"
    file.write_text("DARKROOM_MAX_IMAGES_PER_REQUEST=8\n")
    flags = ("--log-level", "info", "--settings-file", str(file))
    with serving(*FLAGS, *flags, log=folder / "log") as server:
        yield server, file


@pytest.mark.slow
def test_a_rolling_restart_costs_no_request_and_brings_new_settings(
    tree: tuple[Served, Path],
) -> None:
    server, file = tree
    pid = server.process.pid
    before = set(children(pid).values())
    file.write_text("DARKROOM_MAX_IMAGES_PER_REQUEST=1\n")
    ending, statuses = threading.Event(), list[int]()

    def client() -> None:
        with httpx.Client(timeout=PATIENCE) as kept:
            while not ending.wait(0.02):  # some hundred requests a second
                reply = kept.post(url(server, "/classify"), content=jpeg(), headers=RAW)
                statuses.append(reply.status_code)

    with ThreadPoolExecutor(4) as clients:
        running = [clients.submit(client) for _ in range(4)]
        try:
            server.process.send_signal(signal.SIGHUP)
            until(lambda: all(gone(old) for old in before))
        finally:
            ending.set()
        for each in running:
            each.result()
    assert set(statuses) == {200}
    two = {"images": [{"url": "http://localhost/a"}, {"url": "http://localhost/b"}]}
    refused = post(url(server, "/classify"), json=two)
    assert refused.status_code in (413, 422)
    assert "1" in refused.text
