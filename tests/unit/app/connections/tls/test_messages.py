import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from app.connections.tls.messages import MOST_MESSAGES, bounded
from tests.certificates import self_signed
from tests.chaos.attacks.tls_records import Records, shaken


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return self_signed(tmp_path_factory.mktemp("tls"), "DNS:one.example")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl makes no certificate to test with: {error}")


class Served:
    """A server's end of a connection, and the records of a client that has shaken hands with it."""

    def __init__(self, certificate: Path) -> None:
        context = bounded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.load_cert_chain(certificate)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.end = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.client: Records = shaken(self._exchanged)

    def receive(self, *records: bytes) -> None:
        self._incoming.write(b"".join(records))

    def left(self) -> int:
        return self._incoming.pending

    def _exchanged(self, data: bytes) -> bytes:
        self._incoming.write(data)
        with suppress(ssl.SSLWantReadError):
            self.end.do_handshake()
        return self._outgoing.read()


@pytest.mark.parametrize("asked", [False, True])
def test_a_peer_that_renews_its_keys_again_and_again_is_cut_off(
    asked: bool, certificate: Path
) -> None:
    served = Served(certificate)
    served.receive(*(served.client.key_update(asked) for _ in range(1000)))
    served.receive(served.client.record(b"GET /"))
    with pytest.raises(ssl.SSLEOFError):
        served.end.read(100)
    with pytest.raises(ssl.SSLEOFError):
        served.end.read(100)
    assert served.left() == 0


def test_a_peer_may_renew_its_keys_some_times(certificate: Path) -> None:
    served = Served(certificate)
    for number in range(MOST_MESSAGES // 2):
        text = b"piece %d" % number
        served.receive(served.client.key_update(True), served.client.record(text))
        assert served.end.read(100) == text


def test_data_is_not_counted(certificate: Path) -> None:
    served = Served(certificate)
    served.receive(*(served.client.record(b"a") for _ in range(10 * MOST_MESSAGES)))
    assert [served.end.read(1) for _ in range(10 * MOST_MESSAGES)] == [b"a"] * 10 * MOST_MESSAGES
