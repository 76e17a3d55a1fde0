"""Identify the client of a request: by its network address, or by an API key.

Each line of the file of keys has one key: `name:key`, or `name:sha256=HEX` with the 64 hexadecimal
digits of the key's SHA-256. A line `!name:…` is a known key that is disabled. Empty lines and lines
that begin with `#` are skipped. Names are 1 to 64 of the characters A-Z a-z 0-9 . _ - and appear in
logs; keys do not.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.types import Scope

from models.domain.errors import Forbidden, Unauthorized

IPV6_PREFIX = 64
"""Bits of an IPv6 address that identify a client: providers assign whole networks of this size."""

LOCAL = "local"
"""The client of requests without an address: on Unix sockets, and of the command line."""

_LINE = re.compile(r"(!?)([A-Za-z0-9._-]{1,64}):(.+)")
_DIGEST = re.compile(r"sha256=([0-9a-fA-F]{64})")


def client_of(scope: Scope) -> str:
    """Return the client's address, or the network of an IPv6 address."""
    client = scope.get("client")
    return network_of(client[0]) if client else LOCAL


@lru_cache(4096)
def network_of(host: str) -> str:
    """Return an IPv4 address as it is, the /64 network of an IPv6 address, and other texts."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False))


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The name and the SHA-256 digest of a key, and whether the key is disabled."""

    name: str
    digest: bytes
    disabled: bool


class ApiKeys:
    """The keys of a file; `reload` reads the file again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: Sequence[ApiKey] = ()
        self.reload()

    def reload(self) -> None:
        """Read the file again; if it is wrong, raise ValueError and keep the old keys."""
        self._keys = read_keys(self._path)

    def client_of(self, scope: Scope) -> str:
        """Return the name of a request's key. Raises Unauthorized and Forbidden.

        Every digest is compared even after a match, so that the time reveals nothing about keys.
        """
        given = _given(scope)
        if given is None:
            raise Unauthorized(
                "this server needs an API key; send `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            )
        digest = hashlib.sha256(given).digest()
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        if not found:
            raise Unauthorized("the API key is not known here; ask the operator for one")
        if found[0].disabled:
            raise Forbidden(f"the API key {found[0].name!r} is disabled; ask the operator")
        return found[0].name


def read_keys(path: Path) -> list[ApiKey]:
    """Return the keys of a file; the ValueError names the wrong line and never shows a key."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"the API keys file {path} cannot be read: {reason}") from None
    keys: list[ApiKey] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{path}, line {number}: write `name:key`, or `name:sha256=` and 64 hexadecimal "
                "digits; a name has 1 to 64 of A-Z a-z 0-9 . _ -"
            )
        disabled, name, secret = match.groups()
        hashed = _DIGEST.fullmatch(secret)
        if secret.startswith("sha256=") and hashed is None:
            raise ValueError(f"{path}, line {number}: a SHA-256 has 64 hexadecimal digits")
        digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(secret.encode()).digest()
        if any(hmac.compare_digest(key.digest, digest) for key in keys):
            raise ValueError(f"{path}, line {number}: this key is there twice")
        keys.append(ApiKey(name, digest, bool(disabled)))
    if not keys:
        raise ValueError(f"{path} has no API key; add one, or leave the setting out")
    return keys


def _given(scope: Scope) -> bytes | None:
    """Return the key of a request; a bearer token takes precedence over `X-API-Key`."""
    token = None
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return bytes(value[7:].strip())
        if name == b"x-api-key":
            token = bytes(value.strip())
    return token
