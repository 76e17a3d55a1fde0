import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.urls import is_allowed, parse_host
from models.domain.errors import AddressRefused

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255"),
    *("100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0"),
    *("172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "198.17.255.255"),
    *("198.20.0.0", "223.255.255.255", "2606:4700:4700::1111", "2620:4f:8001::1"),
    *("2a00:1450:4001:80f::200e", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
    "2606:4700::5efe:8.8.8.8",
]

PRIVATE_IPV4 = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200"),
    *("100.127.255.255", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.0.1"),
    *("169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1"),
    *("192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1"),
    *("198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255"),
]

PRIVATE_IPV6 = [
    *("::", "::1", "::2", "::ffff:0:0", "64:ff9b:1::1", "100::1", "400::1", "2001::1"),
    *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2620:4f:8000::1", "3fff::1"),
    *("4000::1", "5f00::1", "8000::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fdff:ffff::1"),
    *("fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "feff::1", "ff02::1", "ff0e::1"),
]

v4 = st.integers(0, 2**32 - 1).map(IPv4Address)
v6 = st.one_of(st.integers(0, 2**128 - 1), st.integers(1 << 125, (1 << 126) - 1)).map(IPv6Address)


def embeddings(address: IPv4Address) -> dict[str, IPv6Address]:
    """Return `address` in every IPv6 form that carries one."""
    n = int(address)
    high, low = n >> 16, n & 0xFFFF
    local_nat64 = 0x64FF9B0001 << 80
    return {
        "mapped": IPv6Address(0xFFFF << 32 | n),
        "compatible": IPv6Address(n),
        "translated": IPv6Address(0xFFFF << 48 | n),
        "6to4": IPv6Address(0x2002 << 112 | n << 80 | 1),
        "NAT64": IPv6Address(0x64FF9B << 96 | n),
        "local NAT64 /96": IPv6Address(local_nat64 | n),
        "local NAT64 /48": IPv6Address(local_nat64 | high << 64 | low << 40),
        "local NAT64 /56": IPv6Address(local_nat64 | n >> 24 << 64 | (n & 0xFFFFFF) << 32),
        "local NAT64 /64": IPv6Address(local_nat64 | n << 24),
        "Teredo server": IPv6Address(0x20010000 << 96 | n << 64 | 0xF7F7F7F7),
        "Teredo client": IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | n ^ 0xFFFFFFFF),
        "ISATAP": IPv6Address(0x26064700 << 96 | 0x00005EFE << 32 | n),
        "ISATAP, global": IPv6Address(0x26064700 << 96 | 0x02005EFE << 32 | n),
        "ISATAP in 6to4": IPv6Address(0x2002 << 112 | 0x08080808 << 80 | 0x00005EFE << 32 | n),
    }


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_allowed(text: str) -> None:
    assert is_allowed(ip_address(text))


@pytest.mark.parametrize("text", [*PRIVATE_IPV4, *PRIVATE_IPV6])
def test_what_is_not_public_is_refused(text: str) -> None:
    assert not is_allowed(ip_address(text))


@pytest.mark.parametrize("form", list(embeddings(IPv4Address(0))))
@pytest.mark.parametrize("text", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1"])
def test_a_private_address_is_refused_in_every_embedding(text: str, form: str) -> None:
    assert not is_allowed(embeddings(IPv4Address(text))[form])


@given(v4)
def test_no_embedding_allows_what_the_plain_address_does_not(address: IPv4Address) -> None:
    if not is_allowed(address):
        assert not any(is_allowed(form) for form in embeddings(address).values())


@given(v4)
def test_nothing_allowed_is_called_private_by_the_standard_library(address: IPv4Address) -> None:
    if is_allowed(address):
        assert address.is_global
        assert not address.is_multicast


@given(v6)
def test_the_same_holds_for_ipv6(address: IPv6Address) -> None:
    if is_allowed(address) and address.ipv4_mapped is None and address.sixtofour is None:
        assert address.is_global
        assert not address.is_multicast


def test_an_allowed_network_lets_its_addresses_in_and_no_others() -> None:
    networks = (ip_network("127.0.0.0/8"), ip_network("fd00::/8"))
    assert is_allowed(ip_address("127.0.0.1"), networks)
    assert is_allowed(ip_address("fd00::1"), networks)
    assert not is_allowed(ip_address("10.0.0.1"), networks)
    assert not is_allowed(ip_address("::1"), networks)


@pytest.mark.parametrize("form", list(embeddings(IPv4Address(0))))
def test_allowing_a_network_does_not_allow_its_embeddings(form: str) -> None:
    address = embeddings(IPv4Address("127.0.0.1"))[form]
    assert not is_allowed(address, (ip_network("127.0.0.0/8"),))


@pytest.mark.parametrize("host", ["8.8.8.8", "127.0.0.1", "::1", "[::1]", "::ffff:127.0.0.1"])
def test_plain_literals_are_addresses(host: str) -> None:
    assert parse_host(host) == ip_address(host.strip("[]"))


@pytest.mark.parametrize(
    "host",
    ["example.org", "example.org.", "localhost", "1.example", "xn--bcher-kva.example", "a_b.c-d.e"],
)
def test_names_are_no_addresses(host: str) -> None:
    assert parse_host(host) is None


STRANGE = [
    *("2130706433", "0x7f000001", "0x7f.1", "0x7F.0X0.0x0.0X1", "0177.0.0.1", "017700000001"),
    *("127.1", "127.0.1", "0", "127.0.0.1.", "127.0.0.01", "127.0.0.256", "1.2.3.4.5"),
    *("127.0.0.0x", "good.example.1", "fe80::1%eth0", "[fe80::1%25eth0]", "2606:4700::1%eth0"),
    *("[127.0.0.1]x", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1", "%31%32%37.0.0.1"),
    *("127.0.0.1\\.good.example", "good.example\0", "good example", "good.example\n", "a..b"),
    *(".good.example", "", ".", "a" * 64 + ".example", "a." * 127 + "example"),
]


@pytest.mark.parametrize("host", STRANGE)
def test_strange_spellings_are_refused_outright(host: str) -> None:
    with pytest.raises(AddressRefused):
        parse_host(host)


@given(st.text("0123456789abcdefxXABCDEF.", max_size=24))
def test_what_the_c_library_reads_as_an_address_is_never_taken_for_a_name(host: str) -> None:
    try:
        read = socket.inet_aton(host)
    except OSError:
        return
    with suppress(AddressRefused):
        assert parse_host(host) == ip_address(read)


@given(st.text(max_size=300))
def test_any_text_is_an_address_a_name_or_refused(host: str) -> None:
    try:
        found = parse_host(host)
    except AddressRefused:
        return
    if found is None:
        host.encode("idna")
