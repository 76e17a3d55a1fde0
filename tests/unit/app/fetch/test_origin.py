import httpx
import pytest

from app.fetch.fetcher import redirected
from models.domain.errors import OriginFailed


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
