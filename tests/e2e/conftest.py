"""A real server on a socket of 127.0.0.1, with seeded random weights, for all end-to-end tests."""

import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import httpx
import pytest
from fastapi import FastAPI

from app.main import create_app
from app.processes.uvicorn_server import Server
from models.settings import Settings
from tests.drawn_classes import DRAWN
from tests.pictures import encoded, png
from tests.server import NO_TLS, PATIENCE
from workers.engines.cpu.engine import CpuEngine


@dataclass(frozen=True, slots=True)
class Running:
    """A server and a client to talk to it."""

    app: FastAPI
    client: httpx.Client
    port: int
    server: Server
    serving: threading.Thread


PRESETS = """
[small]
ops = [{ name = "resize", width = 8, height = 6 }, { name = "invert" }]
format = "png"
[marked]
ops = [{ name = "overlay", file = "logo.png", x = 2 }]
"""

Start = Callable[..., AbstractContextManager[Running]]


@contextmanager
def running(*, warm: bool = False, **settings: object) -> Iterator[Running]:
    """Serve with these settings, and with these values of what `Settings` fixes for users.

    Without `warm` the server sends itself no requests before it is ready, which would take four
    fifths of the CPU time of a start.
    """
    # On a busy machine a server measures that it is slow, and rightly refuses what cannot end in
    # time: these tests give it more time than the 30 s of users. A canary that comes into the batch
    # of a test's image would change the last digits of its scores, and the queue's length.
    defaults: dict[str, object] = {
        "weights": "random",
        "log_level": "error",
        "default_deadline": 100,
        "allowed_hosts": "*",  # requests that tests write have short names
        "precision": "fp32",  # to measure which one is faster takes half of a server's start
        "decoders": "0",  # their fork server takes as long to start as all the rest
    }
    fixed: dict[str, Any] = {"canary_interval": 1000}
    fixed |= {n: settings.pop(n) for n in [*settings] if n not in Settings.model_fields}
    chosen = Settings.model_validate(defaults | settings)
    with patch.multiple(Settings, **fixed):
        app = create_app(chosen)
        server = Server(app, chosen)
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listening],))
        try:
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, timeout=PATIENCE, verify=NO_TLS) as client:
                with ExitStack() as start, patch("gc.freeze"):  # frozen objects are never freed
                    if not warm:
                        start.enter_context(
                            patch("app.processes.uvicorn_server.warm_up", AsyncMock())
                        )
                        start.enter_context(patch.object(CpuEngine, "warm_up", Mock()))
                    thread.start()
                    client.get(
                        "/livez", timeout=None
                    )  # the time limit of the test bounds the start
                yield Running(app, client, port, server, thread)
        finally:
            server.should_exit = True
            thread.join()  # the time limit of the test bounds it
            gc.collect()  # a server that has ended holds 50 MB, most of it weights


@contextmanager
def origin(answer: Callable[[str, bytes], tuple[int, bytes]], **headers: str) -> Iterator[str]:
    """Answer each path and body by a status and a body while the block runs; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, body = answer(self.path, sent)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def start() -> Start:
    return running


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a drawing of each class of the bundled network, named by the class."""
    folder = tmp_path_factory.mktemp("photos")
    for label, draw in DRAWN.items():
        (folder / f"{label.replace(' ', '_')}.jpg").write_bytes(encoded(draw(), quality=92))
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    presets = tmp_path_factory.mktemp("presets") / "presets.toml"
    presets.write_text(PRESETS)
    presets.with_name("logo.png").write_bytes(png(5))
    with running(
        decoders="auto",
        presets=presets,
        fetch_allowed_networks="127.0.0.0/8",
        fetch_ports="1-65535",
        max_images_per_request=16,
    ) as started:
        yield started


@pytest.fixture(scope="session")
def client(server: Running) -> httpx.Client:
    return server.client
