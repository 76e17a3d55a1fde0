"""An origin that speaks TLS as no library does."""

import asyncio
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from threading import Thread

import httpx
import pytest

from app.fetch.pinned_network import PinnedBackend, pinned_transport
from tests.certificates import self_signed
from tests.chaos.attacks.tls_records import shaken_by_server
from tests.network import Names, Wires

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


def asked(certificate: Path, updates: int) -> bytes:
    """Return the body of an origin that renews its keys that often in the middle of its answer."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()

        def exchanged(data: bytes) -> bytes:
            connection.sendall(data)
            return connection.recv(1 << 16)

        with connection, suppress(OSError):
            records = shaken_by_server(certificate, exchanged)
            renewed = [records.record(ANSWER), *(records.key_update(False) for _ in range(updates))]
            connection.sendall(b"".join(renewed) + records.record(b"image"))
            while connection.recv(1 << 16):
                pass  # the request, which may have come with the handshake, and the end

    async def ask(port: int) -> bytes:
        trusting = ssl.create_default_context(cafile=str(certificate))
        names = Names({"one.example": [["93.184.216.34"]]})
        transport = pinned_transport(PinnedBackend((), names, Wires()), 0, trusting)
        request = httpx.Request("GET", f"https://one.example:{port}/")
        async with asyncio.timeout(60):
            reply = await transport.handle_async_request(request)
            return await reply.aread()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        return asyncio.run(ask(listener.getsockname()[1]))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return self_signed(tmp_path_factory.mktemp("tls"), "DNS:one.example")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no certificate to test with: {error}")


def test_an_origin_may_renew_its_keys_some_times(certificate: Path) -> None:
    assert asked(certificate, 10) == b"image"
