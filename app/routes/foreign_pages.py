"""Refuse requests that pages of other origins let a browser send.

A browser sends a form, or text, to any address without asking the server first, and from a page on
any site it reaches servers that only this machine can reach. Two headers tell of that, which pages
cannot set: Origin and Sec-Fetch-Site. A name that an attacker's name server points to 127.0.0.1
makes a page of the same origin of it (DNS rebinding); the Host header tells of that. Programs other
than browsers send none of the first two, and are not concerned.
"""

from ipaddress import ip_address

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.departure import DEPARTURE
from app.http.headers import header
from app.http.problems import answer
from app.routes.metrics_only import MARK
from models.domain.errors import ForeignHost, ForeignOrigin, ServiceError
from models.settings import Settings

PATHS = frozenset(
    (
        *("/livez", "/readyz", "/startupz", "/health", "/healthz"),
        *("/v2/health/live", "/v2/health/ready"),
    )
)
"""The paths of health checks."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods of requests that change and compute nothing. A page of another origin can send them, and
cannot read the answers."""

OWN = ("same-origin", "none")
"""Values of Sec-Fetch-Site of requests by a page of this server, or by a person at the browser."""

LONGEST = 200
"""Characters of a header that a message repeats."""


class ForeignPages:
    """ASGI middleware; health checks are answered whatever their Host header, and so are metrics on
    a port of their own.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._origins = frozenset(settings.cors_origins)
        allowed = settings.allowed_hosts or (() if is_loopback(settings.host) else ("*",))
        self._hosts = frozenset(each.lower() for each in (*allowed, settings.host))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        error = self._error(scope) if scope["type"] == "http" else None
        if error is None:
            await self._app(scope, receive, send)
        else:
            await answer(error, Request(scope))(scope, receive, send)

    def _error(self, scope: Scope) -> ServiceError | None:
        host = header(scope, b"host") or ""
        # Behind another server, such as Ray's, this process does not know what its names are.
        listens = DEPARTURE in scope and MARK not in scope
        if "*" not in self._hosts and host and listens and scope["path"] not in PATHS:
            name = _name(host)
            if name not in self._hosts and not is_loopback(name):
                return ForeignHost(
                    f"the Host header names {name[:LONGEST]!r}, which is no name of this server; "
                    "use localhost, or let the operator add the name to DARKROOM_ALLOWED_HOSTS"
                )
        if scope["method"] in SAFE or "*" in self._origins:
            return None
        origin, site = header(scope, b"origin"), header(scope, b"sec-fetch-site")
        if origin in self._origins or site in OWN:
            return None
        if site is None and (origin is None or _is_own(origin, host)):
            return None
        return ForeignOrigin(
            f"the request comes from a page of {(origin or 'another site')[:LONGEST]}, which may "
            "not use this server; let the operator add its origin to DARKROOM_CORS_ORIGINS"
        )


def is_loopback(name: str) -> bool:
    """Return whether a host, without a port, is this machine by its name or its address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return the name or the address of a Host header, without its port."""
    before, colon, _ = host.rpartition(":")
    name = before if colon and not host.endswith("]") else host
    return name.strip("[]").lower()


def _is_own(origin: str, host: str) -> bool:
    """Return whether an origin has the name and the port of a Host header."""
    scheme, _, address = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme, "")
    return bool(address) and address.removesuffix(port) == host.lower().removesuffix(port)
