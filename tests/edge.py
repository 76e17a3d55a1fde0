"""The proxies of `docker/edge`, with their files of that folder, in front of a server here."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.server import until

FOLDER = Path(__file__).parents[1] / "docker/edge"

PROGRAMS = {
    "nginx": shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin"),
    "envoy": shutil.which("envoy", path=Path(sys.executable).parent) or shutil.which("envoy"),
}
"""Where each proxy is installed; None where a machine lacks it."""


@contextmanager
def behind(name: str, folder: Path, server: int, body: str = "256m") -> Iterator[int]:
    """Run a proxy in front of the server at the port `server`; yield the port of the proxy.

    `folder` takes the proxy's own files and its log. nginx refuses bodies above `body`.
    """
    port = free_port()
    words = {"nginx": _nginx, "envoy": _envoy}[name](folder, port, server, body)
    with (
        (folder / "proxy.log").open("wb") as log,
        subprocess.Popen([str(PROGRAMS[name]), *words], stderr=log) as process,
    ):
        try:
            until(lambda: listens(port))
            yield port
        finally:
            process.terminate()


def _nginx(folder: Path, port: int, server: int, body: str) -> list[str]:
    """Write nginx's file for these ports; return the arguments of nginx."""
    text = (FOLDER / "nginx.conf").read_text().replace("/tmp/", f"{folder}/")
    text = text.replace("server darkroom:8000", f"server 127.0.0.1:{server}")
    text = text.replace("listen 8080", f"listen 127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(text.replace("size 256m", f"size {body}"))
    return ["-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


def _envoy(folder: Path, port: int, server: int, _body: str) -> list[str]:
    """Write Envoy's file for these ports; return the arguments of Envoy."""
    text = (FOLDER / "envoy.yaml").read_text()
    text = text.replace(
        "address: darkroom, port_value: 8000", f"address: 127.0.0.1, port_value: {server}"
    )
    text = text.replace(
        "address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {port}"
    )
    (folder / "envoy.yaml").write_text(text)
    words = ["-c", str(folder / "envoy.yaml"), "--log-level", "warning"]
    return [*words, "--disable-hot-restart", "--concurrency", "2"]


def listens(port: int) -> bool:
    """Return whether a socket of 127.0.0.1 takes connections at the port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
