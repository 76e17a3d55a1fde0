import asyncio

import httpx
import pytest

from app.fetch.origin import Origins
from app.intake.spool import Spool
from models.domain.errors import OriginFailed


def redirected(start: str, location: str) -> httpx.URL:
    """Return where a redirect from `start` leads."""
    transport = httpx.MockTransport(lambda _: httpx.Response(302, headers={"Location": location}))
    origins = Origins(transport, httpx.Timeout(5), lambda: Spool(10, 10))
    found = asyncio.run(origins.ask(httpx.URL(start)))
    assert isinstance(found, httpx.URL)
    return found


@pytest.mark.parametrize(
    ("start", "location"),
    [
        ("http://one.example/", "http://two.example/cat"),
        ("http://one.example/", "https://one.example/cat"),
        ("https://one.example/", "https://two.example/cat"),
    ],
)
def test_a_redirect_leads_to_any_host_and_up_to_https(start: str, location: str) -> None:
    assert str(redirected(start, location)) == location


@pytest.mark.parametrize("location", ["http://one.example/", "http://two.example:443/"])
def test_a_redirect_from_https_down_to_http_is_not_followed(location: str) -> None:
    with pytest.raises(OriginFailed, match="https to http"):
        redirected("https://one.example/", location)


def test_a_redirect_without_a_scheme_keeps_https() -> None:
    assert str(redirected("https://one.example/a/b", "//two.example/c")) == "https://two.example/c"
    assert str(redirected("https://one.example/a/b", "c")) == "https://one.example/a/c"
