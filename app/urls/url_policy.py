"""The check of image URLs that every redirect passes before a name is resolved.

It checks the spelling only; the address of a name is checked when it is connected to.
"""

import httpx

from app.urls.address_policy import parse_host
from models.domain.errors import AddressRefused, FieldError, InvalidParameter

MAX_URL = 8192

SCHEMES = ("file", "s3", "gs", "az")
"""The schemes of storage addresses, which are files of folders and buckets."""


def is_stored(url: str) -> bool:
    """Return whether `url` begins like a storage address; nothing else of it is checked."""
    scheme, mark, _ = url[:8].partition("://")
    return bool(mark) and scheme.lower() in SCHEMES


def parse_url(text: str) -> httpx.URL:
    """Return an acceptable URL without its fragment.

    `app.fetch.url_rules` has the operator's choice of ports and hosts. Raises InvalidParameter for
    texts that are no URL of http or https, and AddressRefused for credentials (the server could
    leak them, and `http://good@evil` misleads readers) and ambiguous hosts.
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
    return InvalidParameter(f"url: {wrong}", [FieldError("url", wrong, given[:200])])
