import httpx
import pytest
from pydantic import ValidationError

from app.fetch.fetcher import FetchLimits, redirected
from app.urls import parse_url
from models.domain.errors import AddressRefused, OriginFailed
from models.settings import Settings


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


@pytest.mark.parametrize(
    ("start", "location", "expected"),
    [
        ("http://one.example/", "http://two.example/cat", "http://two.example/cat"),
        ("http://one.example/", "https://one.example/cat", "https://one.example/cat"),
        ("https://one.example/", "https://two.example/cat", "https://two.example/cat"),
        ("https://one.example/a/b", "//two.example/c", "https://two.example/c"),
        ("https://one.example/a/b", "c", "https://one.example/a/c"),
    ],
)
def test_a_redirect_leads_to_any_host_and_up_to_https(
    start: str, location: str, expected: str
) -> None:
    assert str(redirected(httpx.URL(start), location)) == expected


@pytest.mark.parametrize("location", ["http://one.example/", "http://two.example:443/"])
def test_a_redirect_from_https_down_to_http_is_not_followed(location: str) -> None:
    with pytest.raises(OriginFailed, match="https to http"):
        redirected(httpx.URL("https://one.example/"), location)
