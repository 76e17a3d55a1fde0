"""What a client meets at the connection: the limit, HEAD, pages of other origins, and TLS."""

import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tritonclient.grpc import InferenceServerClient

from models.exit_codes import ExitCode
from tests.certificates import self_signed
from tests.e2e.conftest import Running, Start
from tests.pictures import jpeg
from tests.ports import free_port
from tests.server import COLD, FILTERS, PATIENCE, get, serving, until

HEALTHCHECK = Path(__file__).parents[2] / "docker/healthcheck.py"
HOST = b"Host: x\r\n"
JPEG = {"Content-Type": "image/jpeg"}

TLS_ENDS = 30.0
"""Seconds for which asyncio waits until a client ends TLS."""


@pytest.fixture(scope="module")
def called(start: Start) -> Iterator[Running]:
    """Start a server that pages of another origin may call."""
    with start(cors_origins="https://pages.example") as running:
        yield running


def opened(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(PATIENCE)
    return connection


def until_the_end(connection: socket.socket) -> bytes:
    """Return all bytes of the server until it closes; a reset is an error."""
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found


def asked(port: int, request: bytes) -> bytes:
    with opened(port) as connection:
        connection.sendall(request)
        return until_the_end(connection)


def test_a_server_with_all_its_connections_in_use_is_503_until_one_ends(start: Start) -> None:
    head = b"POST /classify HTTP/1.1\r\n" + HOST + b"Content-Type: image/jpeg\r\n"
    head += b"Content-Length: 5000\r\nExpect: 100-continue\r\n\r\n"
    request = b"GET /livez HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    everybody = "127.0.0.0/8"  # addresses of proxies have no limit of their own
    with start(max_connections=16, trusted_proxies=everybody) as running, ExitStack() as stack:
        busy = []
        for _ in range(16):
            busy.append(stack.enter_context(opened(running.port)))
            busy[-1].sendall(head)
            assert busy[-1].recv(100).startswith(b"HTTP/1.1 100")
        answer = asked(running.port, request)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"connections_exhausted" in answer
        assert b"DARKROOM_MAX_CONNECTIONS" in answer
        assert b"retry-after: " in answer
        busy[0].close()
        until(lambda: asked(running.port, request).startswith(b"HTTP/1.1 200"))
        refused = 'connections_ended_total{reason="connections_exhausted"}'
        assert refused in running.client.get("/metrics").text


def test_head_works_wherever_get_does(called: Running) -> None:
    for path in (
        *("/", "/docs", "/openapi.json", "/filters", "/filters/invert", "/models"),
        *("/filters/invert/thumbnail", "/livez", "/readyz", "/startupz", "/health", "/healthz"),
    ):
        got, head = called.client.get(path), called.client.head(path)
        assert (got.status_code, head.status_code, head.content) == (200, 200, b""), path
        for name in ("content-type", "content-length", "cache-control", "content-security-policy"):
            assert head.headers.get(name) == got.headers.get(name), path


def test_pages_of_named_origins_may_call_and_read_errors_too(called: Running) -> None:
    named = {"Origin": "https://pages.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}
    allowed = called.client.options("/classify", headers=named | asked)
    assert allowed.status_code == 200
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://pages.example"
    for answer in (
        called.client.get("/nope", headers=named),
        called.client.post("/classify", content=b"no image", headers=named),
    ):
        assert answer.status_code >= 400
        assert answer.headers["Access-Control-Allow-Origin"] == "https://pages.example"
        assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]
    other = called.client.get("/livez", headers={"Origin": "https://other.example"})
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate with its key in the same file."""
    try:
        return self_signed(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no certificate here: {error}")


@pytest.mark.parametrize(
    "front_ends", ["1", *(pytest.param(n, marks=pytest.mark.slow) for n in "02")]
)
def test_https_and_metrics_on_a_port_of_their_own(certificate: Path, front_ends: str) -> None:
    port, rpc = free_port(), free_port()
    ports = ("--metrics-port", str(port), "--grpc-port", str(rpc))
    flags = ("--tls-certificate", str(certificate), *ports)
    more = ("--front-ends", front_ends, "--log-level", "error")
    trust = ssl.create_default_context(cafile=str(certificate))
    with serving(*flags, *more, tls=trust, program=COLD, environment=FILTERS) as server:
        url = f"https://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, verify=trust, timeout=PATIENCE) as client:
            answer = client.post("/filter?name=invert", content=jpeg(), headers=JPEG)
            assert answer.status_code == 200, answer.text
            assert client.get("/metrics").status_code == 404
        where = {"DARKROOM_PORT": str(server.port), "DARKROOM_TLS_CERTIFICATE": str(certificate)}
        healthy = subprocess.run([sys.executable, HEALTHCHECK], env=where, capture_output=True)
        assert healthy.returncode == 0, healthy.stdout
        chain = str(certificate.with_name("chain.pem"))
        with InferenceServerClient(f"127.0.0.1:{rpc}", ssl=True, root_certificates=chain) as caller:
            assert caller.is_server_ready()
        with opened(server.port) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n")
            assert not plain.recv(100).startswith(b"HTTP")
        scraped = get(f"http://127.0.0.1:{port}/metrics")
        assert re.search(r'images_total\{operation="filter",outcome="ok"\} 1', scraped.text)
        livez = get(f"http://127.0.0.1:{port}/livez")
        assert livez.status_code == 404


@pytest.mark.slow
def test_a_client_that_does_not_end_tls_does_not_hold_up_the_end(certificate: Path) -> None:
    trust = ssl.create_default_context(cafile=str(certificate))
    flags = ("--tls-certificate", str(certificate), "--weights", "random", "--precision", "fp32")
    with (
        serving(*flags, "--log-level", "error", tls=trust) as server,
        trust.wrap_socket(opened(server.port), server_hostname="127.0.0.1") as silent,
    ):
        silent.sendall(b"GET /livez HTTP/1.1\r\n" + HOST + b"\r\n")
        assert silent.recv(100).startswith(b"HTTP/1.1 200")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(TLS_ENDS - 5) == ExitCode.INTERRUPTED
