import httpx
import pytest
from pydantic import ValidationError

from app.fetch.fetcher import FetchLimits, redirected
from app.urls import parse_url
from models.domain.errors import AddressRefused, OriginFailed
from models.settings import Settings


def check(url: str, **settings: object) -> None:
    FetchLimits.from_settings(Settings.model_validate(settings)).check(parse_url(url))


@pytest.mark.parametrize("port", ["", ":80", ":443"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_ports_of_the_web_are_allowed(scheme: str, port: str) -> None:
    check(f"{scheme}://example.org{port}/cat.jpg")


@pytest.mark.parametrize("port", [1, 21, 22, 25, 79, 81, 6379, 8080, 9200, 11211, 65535])
def test_other_ports_are_refused_by_default(port: int) -> None:
    with pytest.raises(AddressRefused, match=rf"port {port} .* 80,443 \(DARKROOM_FETCH_PORTS\)"):
        check(f"http://example.org:{port}/")


def test_a_setting_allows_ports_and_ranges() -> None:
    for port in (8080, 9000, 9100):
        check(f"http://example.org:{port}/", fetch_ports="8080, 9000-9100")
    for port in (80, 8081, 8999, 9101):
        with pytest.raises(AddressRefused):
            check(f"http://example.org:{port}/", fetch_ports="8080, 9000-9100")


@pytest.mark.parametrize("ports", ["", "0", "65536", "90-80", "80,,443", "http", "-1", "٣", "8_0"])
def test_a_list_that_is_none_is_an_error_of_the_settings(ports: str) -> None:
    with pytest.raises(ValidationError, match="is no port or range"):
        Settings.model_validate({"fetch_ports": ports})


HOSTS = {"fetch_allowed_hosts": "Images.example.org, *.cdn.example, 93.184.216.34"}


@pytest.mark.parametrize(
    "host",
    [
        "images.example.org",
        "IMAGES.example.org.",
        "a.cdn.example",
        "a.b.cdn.example",
        "93.184.216.34",
    ],
)
def test_hosts_of_the_list_are_allowed(host: str) -> None:
    check(f"http://{host}/", **HOSTS)


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "a.images.example.org",
        "cdn.example",
        "evilcdn.example",
        "93.184.216.35",
        "a.cdn.example.evil.example",
        "localhost",
    ],
)
def test_other_hosts_are_refused_where_there_is_a_list(host: str) -> None:
    with pytest.raises(AddressRefused, match="DARKROOM_FETCH_ALLOWED_HOSTS"):
        check(f"http://{host}/", **HOSTS)
    check(f"http://{host}/")


@pytest.mark.parametrize("hosts", ["*", "*.", "a*.example", "http://a", "a b", "a/b"])
def test_a_host_that_is_none_is_an_error_of_the_settings(hosts: str) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"fetch_allowed_hosts": hosts})


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
