"""The gate of image URLs: what every hop passes before a name is even resolved.

Judges the spelling only. Where a name leads is judged when it is connected to.
"""

import httpx

from app.urls.address_policy import parse_host
from models.domain.errors import AddressRefused, FieldError, InvalidParameter

MAX_URL = 8192


def parse_url(text: str) -> httpx.URL:
    """A URL we may try, without its fragment.

    `app.fetch.url_rules` has the operator's choice of ports and hosts. Raises InvalidParameter
    for what is no URL of http or https, AddressRefused for credentials (they would be ours to leak,
    and `http://good@evil` misleads readers) and ambiguous hosts.
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
    """The host as it goes over the wire: ASCII, without brackets."""
    return url.raw_host.decode("ascii")


def _invalid(wrong: str, given: str) -> InvalidParameter:
    return InvalidParameter(f"url: {wrong}", [FieldError("url", wrong, given[:200])])
