"""Rules for URLs from clients, and for the addresses that URLs may lead to; connects to nothing.

Every redirect passes `parse_url` before a name is resolved. `parse_url` checks the spelling only:
the address of a name is checked by `is_allowed` when it is connected to. May import `models`.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

from models.domain.errors import AddressRefused, InvalidParameter
from models.settings import Network

MAX_URL = 8192
"""Characters of a URL."""

SCHEMES = ("file", "s3", "gs", "az")
"""The schemes of storage addresses, which are files of folders and buckets."""

Address = IPv4Address | IPv6Address

REFUSED: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # unspecified, this network
        "10.0.0.0/8",  # RFC 1918
        "100.64.0.0/10",  # carrier-grade NAT, and a metadata service at 100.100.100.200
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's platform address, public by form only
        "169.254.0.0/16",  # link-local, and most metadata services
        "172.16.0.0/12",  # RFC 1918
        "192.0.0.0/24",  # IETF protocol assignments, and a metadata service at 192.0.0.192
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
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

# All of IPv6 that is given out. Outside lie loopback, unique local (metadata at fd00:ec2::254),
# link-local, site-local, multicast, the local NAT64 prefix 64:ff9b:1::/48 and the deprecated
# IPv4-compatible forms, all refused as a whole.
_GLOBAL_UNICAST = IPv6Network("2000::/3")

_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII | re.IGNORECASE)


def is_allowed(address: Address, networks: Iterable[Network] = ()) -> bool:
    """Return whether `address` may be connected to: public in every reading, or in one of
    `networks`.

    `networks` are compared with the address itself, never with one embedded in it: to allow
    127.0.0.0/8 does not allow its NAT64 form.
    """
    if any(address in network for network in networks):
        return True
    if isinstance(address, IPv6Address) and not _may_be_public(address):
        return False
    readings = (address, *_embedded(address))
    return not any(reading in network for reading in readings for network in REFUSED)


def parse_host(host: str) -> Address | None:
    """Return the address that `host` spells, or None for a name; raise AddressRefused.

    Zones (%eth0), anything but an ASCII host name, and every name that ends in a number and is not
    a plain IPv4 address are refused. Decimal, octal, hexadecimal and short forms are such names:
    some resolvers accept them as addresses, others do not, and no client needs them.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ip_address(bare)
    except ValueError:
        pass
    else:
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise AddressRefused(f"{host}: addresses with a zone are not fetched; leave it out")
        return address
    name = host.removesuffix(".")
    if not _NAME.fullmatch(name):
        raise AddressRefused(f"{host!r} is no host name; write it in ASCII, without escapes")
    if _NUMBER.fullmatch(name.rsplit(".", 1)[-1]):
        raise AddressRefused(f"{host}: write an address as four plain decimal numbers")
    return None


def _may_be_public(address: IPv6Address) -> bool:
    return any(address in network for network in (_GLOBAL_UNICAST, _MAPPED, _NAT64))


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """Yield every IPv4 address that an IPv6 address outside the refused networks may carry."""
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        yield IPv4Address(number & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if number >> 32 & 0xFDFFFFFF == 0x00005EFE:  # ISATAP, with either value of the global bit
        yield IPv4Address(number & 0xFFFFFFFF)


def is_stored(url: str) -> bool:
    """Return whether `url` begins like a storage address; nothing else of it is checked."""
    scheme, mark, _ = url[:8].partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def parse_url(text: str) -> httpx.URL:
    """Return an acceptable URL without its fragment.

    `FetchLimits` of `app/fetch` has the operator's choice of ports and hosts. Raises
    InvalidParameter for texts that are no URL of http or https, and AddressRefused for credentials
    (the server could leak them, and `http://good@evil` misleads readers) and ambiguous hosts.
    """
    if len(text) > MAX_URL:
        raise _invalid(f"longer than {MAX_URL} characters", text)
    try:
        url = httpx.URL(text)
        has_host = bool(url.host)  # decodes an xn-- name: better fails here than later
    except (httpx.InvalidURL, ValueError):
        raise _invalid("not a URL; write it like https://example.org/cat.jpg", text) from None
    if url.scheme not in ("http", "https"):
        raise _invalid("only http and https are fetched", text)
    if not has_host:
        raise _invalid("has no host", text)
    if url.userinfo:
        raise AddressRefused("URLs with a user name or password are not fetched; leave them out")
    if url.port is not None and not 1 <= url.port <= 65535:
        raise AddressRefused(f"port {url.port} is not fetched from; use 1 to 65535")
    parse_host(host_of(url))
    return url.copy_with(fragment=None)


def host_of(url: httpx.URL) -> str:
    """Return the host as it is sent: ASCII, without brackets."""
    return url.raw_host.decode("ascii")


def _invalid(wrong: str, given: str) -> InvalidParameter:
    return InvalidParameter.of("url", wrong, given[:200])
