"""Identify the client of a request by its network address."""

import ipaddress
from functools import lru_cache

from starlette.types import Scope

IPV6_PREFIX = 64
"""Bits of an IPv6 address that identify a client: providers assign whole networks of this size."""

LOCAL = "local"
"""The client of requests without an address: on Unix sockets, and of the command line."""


def client_of(scope: Scope) -> str:
    """Return the client's address, or the network of an IPv6 address."""
    client = scope.get("client")
    return _network(client[0]) if client else LOCAL


@lru_cache(4096)
def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False))
