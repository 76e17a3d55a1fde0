"""Records of TLS 1.3 that no library sends, written after a handshake of the standard library.

Source: RFC 8446, sections 4.6.3 (KeyUpdate), 5.2 (records), 7.1 to 7.3 (keys).
"""

import hashlib
import hmac
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_CIPHERS = {"TLS_AES_128_GCM_SHA256": ("sha256", 16), "TLS_AES_256_GCM_SHA384": ("sha384", 32)}

HANDSHAKE, DATA = 22, 23
"""Types of the content of a record."""

KEY_UPDATE = b"\x18\x00\x00\x01"
"""A KeyUpdate without its last byte, which is 1 if the server should update its keys too."""


class Records:
    """Writer of records with the keys of one end, after its handshake and before any data."""

    def __init__(self, secret: bytes, cipher: str) -> None:
        self._digest, self._length = _CIPHERS[cipher]
        self._begin(secret)

    def record(self, content: bytes, kind: int = DATA) -> bytes:
        """Return a record with `content`, encrypted."""
        plain = content + bytes((kind,))
        head = b"\x17\x03\x03" + (len(plain) + 16).to_bytes(2, "big")
        nonce = (int.from_bytes(self._iv, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        return head + self._key.encrypt(nonce, plain, head)

    def key_update(self, asked: bool) -> bytes:
        """Return a record that tells of new keys, which further ones have; `asked`: of both."""
        made = self.record(KEY_UPDATE + bytes((asked,)), HANDSHAKE)
        size = hashlib.new(self._digest).digest_size
        self._begin(self._expanded(self._secret, "traffic upd", size))
        return made

    def _begin(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(self._expanded(secret, "key", self._length))
        self._iv = self._expanded(secret, "iv", 12)
        self._number = 0

    def _expanded(self, secret: bytes, label: str, length: int) -> bytes:
        """Return HKDF-Expand-Label of no context, for at most one digest of bytes."""
        name = b"tls13 " + label.encode()
        info = length.to_bytes(2, "big") + bytes((len(name),)) + name + b"\0\1"
        return hmac.digest(secret, info, self._digest)[:length]


def opened(plain: socket.socket) -> Records:
    """Shake hands on a connection, on which only the returned records may be sent from then on."""

    def exchanged(data: bytes) -> bytes:
        plain.sendall(data)
        return plain.recv(1 << 16)

    return shaken(exchanged)


def shaken(exchanged: Callable[[bytes], bytes]) -> Records:
    """Shake hands with a server, which `exchanged` sends bytes to and receives others from."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return _shaken(context, "CLIENT_TRAFFIC_SECRET_0", exchanged)


def shaken_by_server(certificate: Path, exchanged: Callable[[bytes], bytes]) -> Records:
    """Shake hands with a client; the first call of `exchanged` has nothing to send to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.num_tickets = 0  # they would be the first records
    return _shaken(context, "SERVER_TRAFFIC_SECRET_0", exchanged)


def _shaken(context: ssl.SSLContext, secret: str, exchanged: Callable[[bytes], bytes]) -> Records:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile() as log:
        context.keylog_filename = log.name
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.protocol is ssl.PROTOCOL_TLS_SERVER
        end = context.wrap_bio(incoming, outgoing, server_side=server)
        while (cipher := _cipher(end)) is None:
            if not (data := exchanged(outgoing.read())):
                raise ConnectionError("the other end has left the handshake")
            incoming.write(data)
        if not server:
            exchanged(outgoing.read())
        words = [line.split() for line in log.read().decode().splitlines()]
    found = next(found for name, *_, found in words if name == secret)
    return Records(bytes.fromhex(found), cipher)


def _cipher(end: ssl.SSLObject) -> str | None:
    """Go on with a handshake; return the cipher when it has ended."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return None
    found = end.cipher()
    assert found is not None
    return found[0]
