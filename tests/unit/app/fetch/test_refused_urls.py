"""URLs, ports and hosts that must never lead to a connection: given directly, and by a redirect."""

import dataclasses
from contextlib import suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.fetch.fetcher import Fetcher, FetchLimits, redirected
from app.urls import MAX_URL, parse_url
from models.domain.deadline import NEVER
from models.domain.errors import AddressRefused, InvalidParameter, OriginFailed
from models.settings import Settings
from tests.network import Names, Wires
from tests.origin import body, origin, redirect

ANY_PORT = Settings.model_validate({"fetch_ports": "1-65535"})
LIMITS = dataclasses.replace(FetchLimits.from_settings(ANY_PORT), retries=0)

NAMES = {
    "public.example": [["93.184.216.34"]],
    "localhost": [["127.0.0.1", "::1"]],
    "localhost.": [["127.0.0.1"]],
    "localhost.localdomain": [["127.0.0.1"]],
    "ip6-localhost": [["::1"]],
    "private.example": [["10.1.2.3"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "metadata": [["169.254.169.254"]],
    "instance-data": [["169.254.169.254"]],
    "127.0.0.1.nip.example": [["127.0.0.1"]],
    "mixed.example": [["93.184.216.34", "127.0.0.1"]],
    "mixed-other-way.example": [["127.0.0.1", "93.184.216.34"]],
    "mixed-families.example": [["93.184.216.34", "::1"]],
    "mapped.example": [["::ffff:10.0.0.1"]],
    "nat64.example": [["64:ff9b::a00:1"]],
    "scoped.example": [["fe80::1%eth0"]],
    "unspecified.example": [["0.0.0.0"]],
    "xn--bcher-kva.example": [["192.168.0.1"]],
}

ADDRESSES = """
    http://127.0.0.1:8000/ https://127.0.0.1/ http://0.0.0.0/ http://10.0.0.1/
    http://169.254.169.254/latest/meta-data/ http://168.63.129.16/ http://[::1]:8000/
    http://[fd00:ec2::254]/ http://[::ffff:127.0.0.1]/ http://[64:ff9b::a9fe:a9fe]/
    http://[2002:7f00:1::]/
"""

SPELLINGS = """
    http://2130706433/ http://3232235521/ http://0x7f000001/ http://0x7F.0x0.0x0.0x1/
    http://0x7f.1/ http://0177.0.0.1/ http://017700000001/ http://0177.0.0.0x1/ http://127.1/
    http://127.0.1/ http://0/ http://10.1/ http://127.0.0.1./ http://0x7f.1./ http://127.0.0.01/
    http://127.0.0.256/ http://1.2.3.4.5/ http://8.8.8.010/ http://１２７.0.0.1/
    http://①②⑦.0.0.1/ http://127。0。0。1/ http://127．0．0．1/ http://１２７．１/
    http://%31%32%37.0.0.1/ http://127%2e0%2e0%2e1/ http://[fe80::1%25eth0]/
    http://[fe80::1%eth0]/ http://[::1%25lo]/ http://[2606:4700::1%25eth0]/ http://[127.0.0.1]/
    http://[::1/ http://::1/ http://127.0.0.1\\.public.example/ http://[v1.x]/ http://a..b/
    http://public.example%00/ http://public.example%0d%0aHost:x/ http://xn--/ http://00/ http://0./
    http://127.0.0.1../ http://127.0.0.%31/ http://①②⑦.⓪.⓪.①/ http://ⓛocalhost/ http://LOCALHOST./
"""

TRICKS = """
    http://public.example@127.0.0.1/ http://public.example:80@127.0.0.1/ http://@127.0.0.1/
    http://:@127.0.0.1/ http://127.0.0.1@public.example/ http://user:word@public.example/
    http://user@public.example/ http://public.example%40127.0.0.1/ http://a@b@127.0.0.1/
    http://public.example\\@127.0.0.1/ http://127.0.0.1\\@public.example/
    http://127.0.0.1#@public.example/ http://127.0.0.1?@public.example/
    http://127.0.0.1:80\\@public.example/ http://public.example:0/ http://public.example:65536/
    http://public.example:99999/ http://public.example:-1/ http://public.example:80:80/
"""

LEADING_NAMES = " ".join(f"http://{name}/" for name in NAMES if name != "public.example")

SCHEMES = """
    file:///etc/passwd ftp://public.example/ gopher://public.example/ data:image/png;base64,AA==
    javascript:alert(1) unix:///var/run/docker.sock ws://public.example/
    https+unix://%2fvar%2frun/ jar:http://127.0.0.1/!/
"""

# In a redirect these are relative, and lead to where the redirect came from.
WITHOUT_HOST = [
    "http:127.0.0.1",
    "http:///127.0.0.1/",
    "http://",
    "http://:80/",
    "//127.0.0.1/",
    "/",
]

SYSTEM = "http://localhost/?resolved=by-the-system"

FORBIDDEN = " ".join((ADDRESSES, SPELLINGS, TRICKS, LEADING_NAMES, SCHEMES)).split()


@pytest.mark.parametrize("url", [*FORBIDDEN, *WITHOUT_HOST, SYSTEM])
async def test_a_forbidden_url_is_refused_before_any_connection(url: str) -> None:
    wires, outcomes = Wires(), list[str]()
    names = None if url == SYSTEM else Names(NAMES)
    fetcher = Fetcher(LIMITS, lambda outcome, _: outcomes.append(outcome), names, wires)
    with pytest.raises((AddressRefused, InvalidParameter)) as refusal:
        await fetcher.fetch(url, NEVER)
    assert refusal.value.status == 422
    assert wires.connected == []
    assert outcomes == ["refused"]
    await fetcher.aclose()


@pytest.mark.parametrize("url", [*FORBIDDEN, "//127.0.0.1/", "//[::1]:80/"])
async def test_a_redirect_to_a_forbidden_url_is_refused_before_a_second_connection(
    url: str,
) -> None:
    async with origin() as public:
        public.answers["/"] = redirect(url.encode().decode("latin-1"))
        wires = Wires()
        fetcher = Fetcher(LIMITS, resolve=Names(NAMES), network=wires)
        with pytest.raises((AddressRefused, OriginFailed)):
            await fetcher.fetch(public.url(host="public.example"), NEVER)
        assert wires.connected == ["93.184.216.34"]
        assert len(public.requests) == 1
        await fetcher.aclose()


async def test_a_public_url_is_connected_to_at_the_address_that_was_judged() -> None:
    async with origin() as public:
        public.answers["/"] = body(b"image")
        wires = Wires()
        fetcher = Fetcher(LIMITS, resolve=Names(NAMES), network=wires)
        for host in ("public.example", "PUBLIC.example", "8.8.8.8", "[2606:4700::1111]"):
            assert (await fetcher.fetch(public.url(host=host), NEVER)).read() == b"image"
        assert wires.connected == ["93.184.216.34", "8.8.8.8", "2606:4700::1111"]
        await fetcher.aclose()


async def test_a_setting_allows_named_networks() -> None:
    async with origin() as local:
        local.answers["/"] = body(b"image")
        settings = Settings.model_validate(
            {"fetch_allowed_networks": "127.0.0.1/32, fd00::/8", "fetch_ports": "1-65535"}
        )
        fetcher = Fetcher(FetchLimits.from_settings(settings))
        assert (await fetcher.fetch(local.url(), NEVER)).read() == b"image"
        with pytest.raises(AddressRefused, match="DARKROOM_FETCH_ALLOWED_NETWORKS"):
            await fetcher.fetch("http://127.0.0.2/", NEVER)
        await fetcher.aclose()


START = "http://public.example/"


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("ftp://public.example/", "http and https"),
        (START + "a" * (MAX_URL - len(START) + 1), "8192"),
    ],
    ids=["scheme", "length"],
)
def test_a_refusal_says_what_is_wrong_and_names_the_field(url: str, match: str) -> None:
    with pytest.raises(InvalidParameter, match=match) as refusal:
        parse_url(url)
    assert [error.path for error in refusal.value.errors] == ["url"]


@pytest.mark.parametrize(
    ("url", "fetched"),
    [
        (START + "a" * (MAX_URL - len(START)), START + "a" * (MAX_URL - len(START))),
        (f"{START}cat?a=1#top", f"{START}cat?a=1"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://xn--bcher-kva.example/", "http://xn--bcher-kva.example/"),
    ],
    ids=["length", "fragment", "international", "encoded"],
)
def test_a_url_is_fetched_in_one_spelling_without_its_fragment(url: str, fetched: str) -> None:
    parsed = parse_url(url)
    assert f"http://{parsed.raw_host.decode()}{parsed.raw_path.decode()}" == fetched


@given(st.one_of(st.text(), st.text().map("http://{}".format), st.text().map("http://[{}".format)))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    with suppress(AddressRefused, InvalidParameter):
        url = parse_url(text)
        assert url.raw_host.isascii()
        assert not url.userinfo
        assert not url.fragment


def check(url: str, **settings: object) -> None:
    FetchLimits.from_settings(Settings.model_validate(settings)).check(parse_url(url))


PORTS = {"fetch_ports": "8080, 9000-9100"}
HOSTS = {"fetch_allowed_hosts": "Images.example.org, *.cdn.example, 93.184.216.34"}

OF_THE_WEB = [f"{scheme}://a.org{port}/" for scheme in ("http", "https") for port in ("", ":80")]
LISTED = ["images.example.org", "IMAGES.example.org.", "a.cdn.example", "a.b.cdn.example"]
UNLISTED = ["example.org", "a.images.example.org", "cdn.example", "evilcdn.example"]
UNLISTED += ["93.184.216.35", "a.cdn.example.evil.example", "localhost"]


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        *[(url, {}) for url in [*OF_THE_WEB, "https://a.org:443/"]],
        *[(f"http://a.org:{port}/", PORTS) for port in (8080, 9000, 9100)],
        *[(f"http://{host}/", HOSTS) for host in [*LISTED, "93.184.216.34"]],
        *[(f"http://{host}/", {}) for host in UNLISTED],
    ],
)
def test_ports_and_hosts_of_the_settings_are_allowed(url: str, settings: dict[str, str]) -> None:
    check(url, **settings)


@pytest.mark.parametrize(
    ("url", "settings", "match"),
    [
        *[
            (f"http://a.org:{port}/", {}, rf"port {port} .* 80,443 \(DARKROOM_FETCH_PORTS\)")
            for port in (1, 21, 22, 25, 79, 81, 6379, 8080, 9200, 11211, 65535)
        ],
        *[(f"http://a.org:{n}/", PORTS, "DARKROOM_FETCH_PORTS") for n in (80, 8081, 8999, 9101)],
        *[(f"http://{host}/", HOSTS, "DARKROOM_FETCH_ALLOWED_HOSTS") for host in UNLISTED],
    ],
)
def test_other_ports_and_hosts_are_refused(url: str, settings: dict[str, str], match: str) -> None:
    with pytest.raises(AddressRefused, match=match):
        check(url, **settings)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fetch_ports", ["", "0", "65536", "90-80", "80,,443", "http", "-1", "٣", "8_0"]),
        ("fetch_allowed_hosts", ["*", "*.", "a*.example", "http://a", "a b", "a/b"]),
    ],
)
def test_a_list_that_is_none_is_an_error_of_the_settings(name: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ValidationError):
            Settings.model_validate({name: value})


@pytest.mark.parametrize("location", ["http://one.example/", "http://two.example:443/"])
def test_a_redirect_from_https_down_to_http_is_not_followed(location: str) -> None:
    with pytest.raises(OriginFailed, match="https to http"):
        redirected(httpx.URL("https://one.example/"), location)
