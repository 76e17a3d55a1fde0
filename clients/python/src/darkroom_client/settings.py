"""The settings that both clients share, and what httpx gets of them."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypedDict

import httpx

from darkroom_client.errors import ConnectionFailed
from darkroom_client.requests import Call
from darkroom_client.retries import Retries

CONNECT, STEP = 10.0, 300.0
"""Seconds that connecting, and every further step of a request, may take without a deadline."""


class HttpOptions(TypedDict, total=False):
    """Options of httpx: proxies and trust, with the same meaning as there."""

    proxy: str | httpx.Proxy | None
    verify: ssl.SSLContext | str | bool
    trust_env: bool
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a client; see `Client`."""

    connections: int
    images_per_request: int
    bytes_per_request: int
    retries: Retries

    def __post_init__(self) -> None:
        for name in ("connections", "images_per_request", "bytes_per_request"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")


def http_options(
    base_url: str, api_key: str | None, settings: Settings, given: HttpOptions
) -> dict[str, Any]:
    """Return the arguments of `httpx.Client`; raises ValueError for a URL that is none."""
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"base_url is {base_url!r}: give http://HOST:PORT or https://HOST")
    headers = {"User-Agent": f"darkroom-client/{_version()}"} | dict(given.get("headers", {}))
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    kept = settings.connections + 4  # for single calls beside a stream
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept)
    return {**given, "base_url": url, "headers": headers, "limits": limits}


def request_options(call: Call, seconds: float | None) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.build_request`."""
    step = STEP if seconds is None else seconds
    return {
        "method": call.method,
        "url": call.path,
        "params": call.params or None,
        "headers": call.headers,
        "files": _form(call) or None,
        "timeout": httpx.Timeout(step, connect=min(CONNECT, step)),
    }


def failed(error: httpx.RequestError) -> ConnectionFailed:
    """Return a failed connection as an error of this package."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return ConnectionFailed(text, permanent=cause is not None)


Part = tuple[str, tuple[str | None, bytes] | tuple[str, bytes, str]]


def _form(call: Call) -> list[Part]:
    """Return the parts of a form: fields, which have no file name, before files."""
    parts: list[Part] = []
    for name, given in call.fields.items():
        values = [given] if isinstance(given, str) else given
        parts += [(name, (None, value.encode())) for value in values]
    parts += [(name, (None, content)) for name, content in call.pictures.items()]
    return parts + [("files", (*file, "application/octet-stream")) for file in call.files]


def _version() -> str:
    try:
        return version("darkroom-client")
    except PackageNotFoundError:  # imported from a checkout
        return "0"
