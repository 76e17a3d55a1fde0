"""Which addresses image URLs may lead to. Pure: resolves nothing, connects to nothing."""

import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

from models.errors import AddressRefused
from models.settings import Network

Address = IPv4Address | IPv6Address

_REFUSED = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # RFC 1918
        "100.64.0.0/10",  # carrier-grade NAT, and metadata services at 100.100.100.200
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and metadata services
        "172.16.0.0/12",  # RFC 1918
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # RFC 1918
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # a cloud's platform address, public by form only
        "::/128",  # unspecified
        "::1/128",  # loopback
        "100::/64",  # discard
        "2001::/23",  # IETF protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fc00::/7",  # unique local, and metadata services at fd00:ec2::254
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local
        "ff00::/8",  # multicast
    )
)

_LAST_32 = (
    IPv6Network("::/96"),  # IPv4-compatible
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated
    IPv6Network("64:ff9b::/96"),  # NAT64
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")


def is_allowed(address: Address, networks: Iterable[Network] = ()) -> bool:
    """Whether we connect to `address`: public in every reading, or in one of `networks`.

    `networks` are compared with the address itself, never with one embedded in it: who allows
    127.0.0.0/8 has not allowed its NAT64 form.
    """
    if any(address in network for network in networks):
        return True
    readings = (address, *_embedded(address))
    return not any(reading in network for reading in readings for network in _REFUSED)


def literal(host: str) -> Address | None:
    """The address that `host` spells, None for a name; raises AddressRefused for odd spellings.

    Decimal, octal, hexadecimal and short forms are what some resolvers read as an address and
    others as a name; nobody needs them, so they are refused rather than guessed.
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        address = ip_address(bare)
    except ValueError:
        pass
    else:
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise AddressRefused(f"{host}: addresses with a zone are not fetched")
        return address
    plain = bare.rstrip(".")
    if not plain.isascii() or not plain or any(c in plain for c in "%:/\\@ \t\r\n\0"):
        raise AddressRefused(f"{host!r} is not a plain ASCII host name (use its xn-- form)")
    if _reads_as_ipv4(plain):
        raise AddressRefused(f"{host}: write the address as four decimal numbers")
    return None


def _reads_as_ipv4(host: str) -> bool:
    """Whether the C library takes it for an IPv4 address, or it ends like one."""
    try:
        socket.inet_aton(host)
    except OSError:
        last = host.rsplit(".", 1)[-1].lower()
        return last.isdigit() or last.startswith("0x")
    return True


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """Every IPv4 address that an IPv6 address carries."""
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if any(address in network for network in _LAST_32):
        yield IPv4Address(number & 0xFFFFFFFF)
    if address in _LOCAL_NAT64:  # RFC 6052: the place depends on the prefix length; read them all
        yield IPv4Address(number & 0xFFFFFFFF)
        yield IPv4Address((number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
        yield IPv4Address((number >> 64 & 0xFF) << 24 | number >> 32 & 0xFFFFFF)
        yield IPv4Address(number >> 24 & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if number >> 32 & 0xFDFFFFFF == 0x00005EFE:  # ISATAP, with either value of the global bit
        yield IPv4Address(number & 0xFFFFFFFF)
